//! Requests to the collector.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use reqwest::Client;
use tokio::runtime::Handle;

use super::OtlpError;

/// Maximum bytes of an answer that are read: the collector's words about its refusals.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Sends requests on the runtime where it was made, from whatever thread.
#[derive(Clone)]
pub(super) struct Post {
    client: Client,
    runtime: Handle,
    /// The last request failed, and the log says so.
    fails: Arc<AtomicBool>,
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Post")
    }
}

impl Post {
    pub(super) fn new(headers: Vec<(String, String)>, time: Duration) -> Result<Self, OtlpError> {
        // An error says that the process has chosen its cryptography: as good.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut sent = HeaderMap::new();
        for (name, value) in headers {
            let wrong = || OtlpError::Header(name.clone());
            let mut value = HeaderValue::from_str(&value).map_err(|_| wrong())?;
            value.set_sensitive(true);
            sent.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?, value);
        }
        let client = Client::builder().default_headers(sent).timeout(time);
        let client = client.redirect(reqwest::redirect::Policy::none()).build();
        let client = client.map_err(|error| OtlpError::Client(words(&error)))?;
        let runtime = Handle::try_current();
        let runtime = runtime.map_err(|_| OtlpError::Client("no tokio runtime".to_owned()))?;
        Ok(Self { client, runtime, fails: Arc::default() })
    }

    /// Sends a request and reads its answer; the log says when requests begin to fail, and when
    /// they no longer do.
    pub(super) async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        let answered = answer(&self.client, request).await;
        let failure = match &answered {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answers {}", answer.status())),
            Err(error) => Some(error.clone()),
        };
        match failure {
            Some(error) if !self.fails.swap(true, Ordering::Relaxed) => {
                tracing::warn!(error, "the OTLP collector takes nothing");
            }
            None if self.fails.swap(false, Ordering::Relaxed) => {
                tracing::info!("the OTLP collector takes metrics and traces again");
            }
            _ => {}
        }
        answered
    }
}

async fn answer(client: &Client, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
    let request = request.try_into().map_err(|error| words(&error))?;
    let mut answer = client.execute(request).await.map_err(|error| words(&error))?;
    let mut response = Response::builder().status(answer.status());
    if let Some(headers) = response.headers_mut() {
        headers.clone_from(answer.headers());
    }
    let mut body = BytesMut::new();
    while let Some(part) = answer.chunk().await.map_err(|error| words(&error))? {
        if body.len() + part.len() > ANSWER_BYTES_MAX {
            break;
        }
        body.extend_from_slice(&part);
    }
    response.body(body.freeze()).map_err(|error| error.to_string())
}

/// The error in words, with its causes and without the address.
fn words(error: &reqwest::Error) -> String {
    let first = if error.is_connect() {
        "it is not reached"
    } else if error.is_timeout() {
        "it does not answer in time"
    } else {
        "the request failed"
    };
    let mut words = first.to_owned();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}

#[async_trait]
impl HttpClient for Post {
    // The recorder of spans sends from a thread of its own, which no runtime knows.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let post = self.clone();
        let sent = self.runtime.spawn(async move { post.send(request).await });
        Ok(sent.await??)
    }
}
