//! Errors that flow: `?` on calls, states and reminders inside a grain's method, and in `main`.

use emmer::prelude::*;
use emmer::test::{CallFault, World};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
enum StockError {
    #[error("{0} left")]
    Few(u32),
}

#[derive(Debug, thiserror::Error, Serialize, Deserialize, GrainError)]
enum ShopError {
    #[error("{0} is sold out")]
    SoldOut(String),
    #[error(transparent)]
    Stock(#[from] StockError),
    #[error("{0}")]
    #[other]
    Other(emmer::Error),
}

#[grain_interface(key = String)]
trait Stock {
    async fn take(&mut self, n: u32) -> Result<u32, StockError>;
    async fn check(&self) -> Result<(), ShopError>;
    async fn any(&self) -> emmer::Result<u8>;
}

#[derive(Grain, Default)]
struct StockGrain;

#[grain]
impl Stock for StockGrain {
    async fn take(&mut self, n: u32) -> Result<u32, StockError> {
        if n > 3 { Err(StockError::Few(3)) } else { Ok(3 - n) }
    }

    async fn check(&self) -> Result<(), ShopError> {
        Err(ShopError::SoldOut("bread".to_owned()))
    }

    async fn any(&self) -> emmer::Result<u8> {
        Ok("x".parse::<u8>()?)
    }
}

#[grain_interface(key = String)]
trait Shop {
    async fn buy(&mut self, n: u32) -> Result<u32, ShopError>;
    async fn check(&self) -> Result<(), ShopError>;
    async fn later(&mut self) -> Result<(), ShopError>;
    async fn any(&self) -> emmer::Result<u8>;
}

#[derive(Grain)]
struct ShopGrain {
    #[state("sold")]
    sold: Persistent<u32>,
    #[context]
    ctx: Ctx,
}

impl ShopGrain {
    fn stock(&self) -> StockRef {
        self.ctx.grains().grain::<dyn Stock>("main")
    }
}

#[grain]
impl Shop for ShopGrain {
    async fn buy(&mut self, n: u32) -> Result<u32, ShopError> {
        let left = self.stock().take(n).await?;
        *self.sold += n;
        self.sold.write().await?;
        Ok(left)
    }

    async fn check(&self) -> Result<(), ShopError> {
        Ok(self.stock().check().await?)
    }

    async fn later(&mut self) -> Result<(), ShopError> {
        self.ctx.remind("restock").every(Duration::from_secs(90)).await?;
        Ok(())
    }

    async fn any(&self) -> emmer::Result<u8> {
        Ok(self.stock().any().await?)
    }
}

#[grain]
impl ShopGrain {
    #[reminder("restock")]
    async fn restock(&mut self, _: Tick) {}
}

fn describe(silo: emmer::SiloBuilder) -> emmer::SiloBuilder {
    silo.host::<dyn Shop, ShopGrain>().host::<dyn Stock, StockGrain>()
}

#[emmer::test(seeds = 3)]
async fn failures_become_the_variants_that_they_belong_to(world: World) {
    let cluster = world.cluster(3, describe).await;
    let shop = cluster.client().await.grain::<dyn Shop>("corner");
    assert_eq!(shop.buy(1).await.unwrap(), 2);
    let error = shop.buy(4).await.unwrap_err();
    assert!(matches!(error, CallError::App(ShopError::Stock(StockError::Few(3)))), "{error}");
    let error = shop.check().await.unwrap_err();
    assert!(matches!(&error, CallError::App(ShopError::SoldOut(what)) if what == "bread"));
    shop.later().await.unwrap();
    let error = shop.any().await.unwrap_err();
    assert!(error.to_string().contains("invalid digit"), "{error}");
}

#[emmer::test]
async fn what_has_no_variant_keeps_its_words(world: World) {
    let cluster = world.cluster(2, describe).await;
    let shop = cluster.client().await.grain::<dyn Shop>("corner");
    shop.buy(1).await.unwrap();
    world.calls("stock").fail(CallFault::Unreachable);
    let error = shop.buy(1).await.unwrap_err();
    let CallError::App(ShopError::Other(other)) = &error else { panic!("{error}") };
    assert!(other.to_string().contains("unreachable"), "{other}");
    // The caller of the caller sees the same words.
    assert!(error.to_string().contains("unreachable"), "{error}");
}

#[tokio::test]
async fn a_main_says_in_a_sentence_what_is_missing() {
    async fn serve() -> emmer::Result<()> {
        Silo::builder().start().await?;
        Ok(())
    }
    let error = serve().await.unwrap_err();
    assert_eq!(format!("{error:?}"), "no store is configured: call .store(...) or set EMMER_STORE");
    assert!(error.downcast_ref::<emmer::errors::StartError>().is_some());
    async fn connect() -> Result<(), Box<dyn std::error::Error>> {
        Client::builder().connect().await?;
        Ok(())
    }
    let error = connect().await.unwrap_err();
    assert!(format!("{error:?}").starts_with("no store is configured"), "{error:?}");
}
