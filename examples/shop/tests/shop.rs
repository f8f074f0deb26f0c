//! A shop in virtual time, with prices of its own; and the server of prices over HTTP.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use emmer::CallError;
use emmer::test::World;
use emmer_example_shop::{PriceError, PriceServer, Prices, shop};
use emmer_example_shop_api::{Article, CUSTOMER, Cart, Order, ShopError, Stock};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;

struct Fixed(BTreeMap<&'static str, u64>);

impl Prices for Fixed {
    fn price<'a>(&'a self, article: &'a str) -> emmer_example_shop::Price<'a> {
        Box::pin(async move { Ok(self.0.get(article).copied()) })
    }
}

fn with_prices(silo: emmer::SiloBuilder) -> emmer::SiloBuilder {
    let prices: Arc<dyn Prices> = Arc::new(Fixed([("tea", 450), ("cup", 900)].into()));
    shop(silo).shared_service(prices)
}

#[emmer::test(seeds = 3)]
async fn a_customer_buys_what_there_is(world: World) {
    let mut cluster = world.cluster(3, with_prices).await;
    let client = cluster.client().await;
    let stock = |article: &str| client.grain::<dyn Stock>(Article(article.to_owned()));
    let (tea, cup) = (stock("tea"), stock("cup"));
    tea.deliver(10).await.unwrap();
    cup.deliver(1).await.unwrap();
    let cart = client.grain::<dyn Cart>("ann");
    assert_eq!(cart.add(tea.clone(), 2).await.unwrap(), 900);
    assert_eq!(cart.add(cup.clone(), 1).await.unwrap(), 1_800);
    let order = cart.buy().with(&CUSTOMER, "ann").await.unwrap();
    assert_eq!((tea.left().await.unwrap(), cup.left().await.unwrap()), (8, 0));
    assert!(cart.lines().await.unwrap().is_empty());
    // References in states survive every silo.
    for old in 0..3 {
        cluster.add().await;
        cluster.stop(old).await;
    }
    let receipt = order.receipt().await.unwrap().unwrap();
    assert_eq!(receipt.customer.as_deref(), Some("ann"));
    assert_eq!(receipt.lines[0].article, tea);
    assert_eq!(receipt.lines[0].article.left().await.unwrap(), 8);
    // An order that is placed again, by a cart that heard no answer, takes nothing.
    order.place(receipt.lines).await.unwrap();
    assert_eq!(tea.left().await.unwrap(), 8);
    // The last cup is gone: the tea goes back.
    cart.add(tea.clone(), 3).await.unwrap();
    cart.add(cup, 1).await.unwrap();
    let error = cart.buy().await.unwrap_err();
    assert!(matches!(error, CallError::App(ShopError::Stock(_))), "{error}");
    assert_eq!(error.to_string(), "only 0 left");
    assert_eq!(tea.left().await.unwrap(), 8);
    assert_eq!(cart.lines().await.unwrap().len(), 2);
}

#[emmer::test]
async fn what_is_not_sold_cannot_be_bought(world: World) {
    let cluster = world.cluster(1, with_prices).await;
    let client = cluster.client().await;
    let cart = client.grain::<dyn Cart>("bob");
    let milk = client.grain::<dyn Stock>(Article("milk".to_owned()));
    let error = cart.add(milk, 1).await.unwrap_err();
    assert_eq!(error.to_string(), "the shop does not sell milk");
    assert_eq!(cart.buy().await.unwrap_err().to_string(), "the cart is empty");
    let order = client.grain::<dyn Order>(("bob".to_owned(), 0));
    assert_eq!(order.receipt().await.unwrap(), None);
}

#[tokio::test]
async fn prices_come_over_http() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = PriceServer::at(format!("http://{}", listener.local_addr().unwrap()));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = service_fn(|request: hyper::Request<hyper::body::Incoming>| async move {
                let (status, body) = match request.uri().path() {
                    "/prices/tea" => (StatusCode::OK, "450\n".to_owned()),
                    "/prices/odd" => (StatusCode::OK, "much".to_owned()),
                    "/prices/long" => (StatusCode::OK, "1".repeat(1_000)),
                    "/prices/sick" => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
                    _ => (StatusCode::NOT_FOUND, String::new()),
                };
                let answer = Response::builder().status(status);
                answer.body(Full::new(Bytes::from(body)))
            });
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http.serve_connection(TokioIo::new(stream), answer));
        }
    });
    assert_eq!(server.ask("tea").await.unwrap(), Some(450));
    assert_eq!(server.ask("milk").await.unwrap(), None);
    for odd in ["odd", "long", "sick"] {
        assert!(matches!(server.ask(odd).await, Err(PriceError::Answer(_))), "{odd}");
    }
    assert!(matches!(server.ask("a b").await, Err(PriceError::Article(_))));
    let nobody = PriceServer::at("http://127.0.0.1:1").ask("tea").await.unwrap_err();
    assert_eq!(nobody.to_string(), "the server of prices cannot be asked");
}
