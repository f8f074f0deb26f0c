//! Microsoft's emulator of Cosmos DB behind HTTP: a port for each region of its account. Also a
//! part of the program `cosmos-emulator`.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use azure_core::http::{Method, Request, Url};
use azure_data_cosmos_driver::in_memory_emulator::{
    ConsistencyLevel, EmulatorStore, InMemoryEmulatorHttpClient, VirtualAccountConfig,
    VirtualRegion,
};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The header that tells the version of the service; an emulator's begins with `emulator`.
const VERSION_HEADER: &str = "x-ms-gatewayversion";
/// The version of the driver that the emulator is a part of.
const VERSION: &str = "emulator 1.0.0";

/// An account that runs.
pub(crate) struct Emulator {
    client: InMemoryEmulatorHttpClient,
    /// The name of each region, and its port.
    regions: Vec<(String, u16)>,
    last_asked: Mutex<Instant>,
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The beginning of URLs here.
const SCHEME: &str = "http://";

/// The URL of a region, as the emulator knows it.
fn canonical(region: usize) -> String {
    format!("{SCHEME}region{region}.invalid/")
}

#[allow(dead_code, reason = "the program and the tests each use their part")]
impl Emulator {
    /// Starts an account in these regions; the first one writes.
    pub(crate) async fn start(regions: &[&str]) -> Result<Arc<Self>, Failure> {
        Self::start_with(regions, |config| config).await
    }

    /// Starts an emulator with other settings.
    pub(crate) async fn start_with(
        regions: &[&str],
        settings: impl FnOnce(VirtualAccountConfig) -> VirtualAccountConfig,
    ) -> Result<Arc<Self>, Failure> {
        let (mut virtual_regions, mut listeners, mut ports) = (Vec::new(), Vec::new(), Vec::new());
        for (at, name) in regions.iter().enumerate() {
            virtual_regions.push(VirtualRegion::new(name, Url::parse(&canonical(at))?));
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            ports.push(((*name).to_owned(), listener.local_addr()?.port()));
            listeners.push(listener);
        }
        let config = VirtualAccountConfig::new(virtual_regions)?;
        let config = settings(config.with_consistency(ConsistencyLevel::Session));
        let client = InMemoryEmulatorHttpClient::try_new(config)?;
        let emulator =
            Arc::new(Self { client, regions: ports, last_asked: Mutex::new(Instant::now()) });
        for (at, listener) in listeners.into_iter().enumerate() {
            let emulator = emulator.clone();
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(emulator.clone().serve(at, stream));
                }
            });
        }
        Ok(emulator)
    }

    /// The ports of the regions, at 127.0.0.1.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.regions.iter().map(|(_, port)| *port).collect()
    }

    /// The emulator's own knobs.
    pub(crate) fn store(&self) -> Arc<EmulatorStore> {
        self.client.store()
    }

    /// The time since the last request.
    pub(crate) fn idle(&self) -> Duration {
        self.last_asked.lock().map_or(Duration::MAX, |last| last.elapsed())
    }

    async fn serve(self: Arc<Self>, region: usize, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let answer = service_fn(move |request| {
            let emulator = self.clone();
            async move { emulator.answer(region, request).await }
        });
        // The end of a connection is the client's business.
        let _ = auto::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), answer)
            .await;
    }

    async fn answer(
        &self,
        region: usize,
        request: hyper::Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, String> {
        if let Ok(mut last) = self.last_asked.lock() {
            *last = Instant::now();
        }
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(words)?.to_bytes();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let url = Url::parse(&canonical(region))
            .and_then(|url| url.join(path.trim_start_matches('/')))
            .map_err(words)?;
        let method = match parts.method.as_str() {
            "GET" => Method::Get,
            "PUT" => Method::Put,
            "DELETE" => Method::Delete,
            "PATCH" => Method::Patch,
            _ => Method::Post,
        };
        let mut asked = Request::new(url, method);
        for (name, value) in &parts.headers {
            if let Ok(value) = value.to_str() {
                asked.insert_header(name.as_str().to_owned(), value.to_owned());
            }
        }
        asked.set_body(body.to_vec());
        let Ok(answered) = self.client.execute_request(&asked).await else {
            // The region is gone: so is the connection.
            return Err("this region does not answer".into());
        };
        let answered = answered.try_into_raw_response().await.map_err(words)?;
        let mut response = Response::builder().status(u16::from(answered.status()));
        for (name, value) in answered.headers().iter() {
            if !["content-length", "transfer-encoding", VERSION_HEADER].contains(&name.as_str()) {
                response = response.header(name.as_str(), value.as_str());
            }
        }
        response = response.header(VERSION_HEADER, VERSION);
        let mut body = Bytes::copy_from_slice(answered.body().as_ref());
        if path == "/" && answered.status() == StatusCode::OK.as_u16() {
            let host = parts.headers.get("host").and_then(|host| host.to_str().ok());
            body = self.at_home(region, host.unwrap_or_default(), &body);
        }
        response.body(Full::new(body)).map_err(words)
    }

    /// The account's description with the addresses that clients reach its regions at: this one for
    /// the asked region, the others at their ports.
    fn at_home(&self, region: usize, host: &str, body: &[u8]) -> Bytes {
        let mut text = String::from_utf8_lossy(body).into_owned();
        for (at, (_, port)) in self.regions.iter().enumerate() {
            let there = if at == region { host.to_owned() } else { format!("127.0.0.1:{port}") };
            text = text.replace(&canonical(at), &format!("{SCHEME}{there}/"));
        }
        text.into()
    }
}
