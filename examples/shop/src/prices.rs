//! What articles cost: asked of another service.

use std::pin::Pin;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// A price is a number of few digits.
const ANSWER_BYTES_MAX: usize = 64;

/// Knows prices. A silo has one; a test gives it another.
pub trait Prices: Send + Sync {
    /// The price of an article in cents; none if it is not sold.
    fn price<'a>(&'a self, article: &'a str) -> Price<'a>;
}

/// Future of a price.
pub type Price<'a> = Pin<Box<dyn Future<Output = emmer::Result<Option<u64>>> + Send + 'a>>;

/// No price was had.
#[derive(Debug, thiserror::Error)]
pub enum PriceError {
    /// The article's number cannot stand in an address.
    #[error("no article has the number {0:?}")]
    Article(String),
    /// The server cannot be asked.
    #[error("the server of prices cannot be asked")]
    Connect(#[from] hyper_util::client::legacy::Error),
    /// The server answers with something else than a price.
    #[error("the server of prices answers {0:?}")]
    Answer(String),
}

/// A server that answers `GET /prices/tea` with a number.
#[derive(Clone, Debug)]
pub struct PriceServer {
    base: String,
    http: Client<HttpConnector, Empty<Bytes>>,
}

impl PriceServer {
    /// The server at this address, as in `http://127.0.0.1:8080`.
    pub fn at(base: impl Into<String>) -> Self {
        let http = Client::builder(TokioExecutor::new()).build_http();
        Self { base: base.into(), http }
    }

    /// Asks for the price of an article; none if it is not sold.
    ///
    /// # Errors
    /// [`PriceError`].
    pub async fn ask(&self, article: &str) -> Result<Option<u64>, PriceError> {
        let unknown = |_| PriceError::Article(article.to_owned());
        let uri: Uri = format!("{}/prices/{article}", self.base).parse().map_err(unknown)?;
        let answer = self.http.get(uri).await?;
        match answer.status() {
            StatusCode::NOT_FOUND => return Ok(None),
            StatusCode::OK => {}
            other => return Err(PriceError::Answer(other.to_string())),
        }
        let odd = |error: &dyn std::fmt::Display| PriceError::Answer(error.to_string());
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|e| odd(&e))?.to_bytes();
        let text = String::from_utf8_lossy(&body);
        text.trim().parse().map(Some).map_err(|_| odd(&text))
    }
}

impl Prices for PriceServer {
    fn price<'a>(&'a self, article: &'a str) -> Price<'a> {
        Box::pin(async move { Ok(self.ask(article).await?) })
    }
}
