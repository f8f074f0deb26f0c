//! The SDK's requests, sent by the HTTP client that all stores share: one way to connect, one TLS,
//! one list of authorities. The SDK's own client would bring a second one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::config::{HttpClient, RuntimeComponents};
use aws_sdk_dynamodb::error::ConnectorError;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use emmer_store::StoreErrorKind;
use emmer_store_keyvalue::http::{Answer, Http, Request};
use emmer_store_keyvalue::{Failure, Fault};
use reqwest::Method;
use tokio::time::Instant;

/// Failure below the SDK, as it comes out of it again.
#[derive(Debug)]
pub(crate) struct Carried(pub(crate) Failure);

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.clone().fault().detail)
    }
}

impl std::error::Error for Carried {}

/// Sends requests. The caller limits their time; here they end some time.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    pub(crate) http: Arc<Http>,
    pub(crate) timeout: Duration,
}

impl HttpClient for Connector {
    fn http_connector(
        &self,
        _: &HttpConnectorSettings,
        _: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let this = self.clone();
        HttpConnectorFuture::new(async move {
            let sent = async {
                let answer = this
                    .http
                    .send(&translate(&request)?, Instant::now() + this.timeout, false)
                    .await?;
                response(answer)
            };
            sent.await
                .map_err(|failure: Failure| ConnectorError::other(Box::new(Carried(failure)), None))
        })
    }
}

/// A request as the stores' client has it.
fn translate(request: &HttpRequest) -> Result<Request, Fault> {
    let invalid =
        |what: &str| Fault::new(StoreErrorKind::Invalid, format!("a request with {what}"));
    let method =
        Method::from_bytes(request.method().as_bytes()).map_err(|_| invalid("no method"))?;
    let body = request.body().bytes().ok_or_else(|| invalid("a body that streams"))?;
    let uri: reqwest::Url = request.uri().parse().map_err(|_| invalid("no address"))?;
    let path = uri
        .query()
        .map_or_else(|| uri.path().to_owned(), |query| format!("{}?{query}", uri.path()));
    let mut sent = Request::new(method, path, body.to_vec());
    // These two the client says itself, the same.
    let headers =
        request.headers().iter().filter(|(name, _)| !["host", "content-length"].contains(name));
    sent.headers =
        headers.map(|(name, value)| (name.to_owned().into(), value.to_owned())).collect();
    Ok(sent)
}

/// An answer as the SDK has it.
fn response(answer: Answer) -> Result<HttpResponse, Failure> {
    let broken = |what: &str| Failure::Broken(Fault::corrupt(format!("an answer with {what}")));
    let status = StatusCode::try_from(answer.status).map_err(|_| broken("no status"))?;
    let mut response = HttpResponse::new(status, SdkBody::from(answer.body));
    for (name, value) in &answer.headers {
        if let Ok(value) = value.to_str() {
            let (name, value) = (name.as_str().to_owned(), value.to_owned());
            response
                .headers_mut()
                .try_append(name, value)
                .map_err(|_| broken("a header that is none"))?;
        }
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_keep_what_was_signed() {
        let mut request = HttpRequest::new(SdkBody::from("{}"));
        request.set_uri("http://127.0.0.1:8000/").unwrap();
        request.set_method("POST").unwrap();
        for (name, value) in [
            ("x-amz-target", "T.Query"),
            ("authorization", "AWS4 x"),
            ("host", "h"),
            ("content-length", "2"),
        ] {
            request.headers_mut().insert(name, value);
        }
        let sent = translate(&request).unwrap();
        assert_eq!(
            (sent.method.as_str(), sent.path.as_str(), sent.body.as_ref()),
            ("POST", "/", &b"{}"[..])
        );
        let mut headers: Vec<_> =
            sent.headers.iter().map(|(n, v)| (n.as_ref(), v.as_str())).collect();
        headers.sort_unstable();
        assert_eq!(headers, [("authorization", "AWS4 x"), ("x-amz-target", "T.Query")]);
        let answer = response(Answer::of(400, "no")).unwrap();
        assert_eq!((answer.status().as_u16(), answer.body().bytes()), (400, Some(&b"no"[..])));
    }
}
