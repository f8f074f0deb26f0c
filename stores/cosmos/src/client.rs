//! The SDK's client of one container, made when it is needed; requests in time, and again while the
//! service throttles.

use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use azure_core::credentials::{AccessToken, Secret, TokenCredential, TokenRequestOptions};
use azure_core::time::OffsetDateTime;
use azure_data_cosmos::feed::QueryPageIterator;
use azure_data_cosmos::models::ContainerProperties;
use azure_data_cosmos::options::{
    BinaryEncodingOptions, ConnectionPoolOptions, MaxItemCountHint, OperationOptions, QueryOptions,
    ReadConsistencyStrategy, Region, RoutingStrategy, ThrottlingRetryOptions,
};
use azure_data_cosmos::{
    AccountEndpoint, AccountReference, ContainerClient, CosmosClient, CosmosClientBuilder,
    CosmosError, CosmosRuntime, FeedScope, Query,
};
use emmer_store::{Result, StoreErrorKind};
use emmer_store_keyvalue::azure::{TOKEN_FILE_AGE, Token};
use emmer_store_keyvalue::http::Http;
use emmer_store_keyvalue::{Fault, Patience, tls};
use futures_util::StreamExt as _;
use serde_json::Value as Json;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::address::{Address, Credentials};
use crate::document::PARTITION;
use crate::failure::{self, Ended};

/// The longest attempt to connect: the house waits for a server that is away by trying again.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A page of items, and the query that continues behind it; none behind the last.
pub(crate) type Page = (Vec<Json>, Option<Pages>);

/// A query that continues.
pub(crate) struct Pages {
    pages: Box<QueryPageIterator<Json>>,
    /// True for a read of one partition: a page that names no next one is the last. Of all
    /// partitions it is only the last of some.
    in_one: bool,
}

/// A client of one container.
pub(crate) struct Client {
    pub(crate) address: Address,
    /// For what the SDK does not ask.
    pub(crate) http: Http,
    made: Mutex<Made>,
}

/// The SDK's clients, as far as they are made.
#[derive(Default)]
struct Made {
    client: Option<CosmosClient>,
    container: Option<Arc<ContainerClient>>,
}

/// A token that another program keeps fresh, for the SDK.
#[derive(Debug)]
struct Bearer(Arc<Token>);

#[async_trait::async_trait]
impl TokenCredential for Bearer {
    async fn get_token(
        &self,
        _scopes: &[&str],
        _options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let token = self.0.now().map_err(|fault| {
            azure_core::Error::with_message(azure_core::error::ErrorKind::Credential, fault.detail)
        })?;
        // Asked for again when the file may hold another.
        let until = OffsetDateTime::from(SystemTime::now() + TOKEN_FILE_AGE);
        Ok(AccessToken { token: Secret::new(token), expires_on: until })
    }
}

/// The options of every request. The SDK repeats nothing by itself: a commit that it sent twice
/// would look like a conflict with itself. Emmer waits and repeats the same in every store.
fn options() -> OperationOptions {
    let mut throttling = ThrottlingRetryOptions::default();
    throttling.max_retry_count = Some(0);
    let mut options = OperationOptions::default();
    options.throttling_retry_options = Some(throttling);
    options.max_failover_retry_count = Some(0);
    // A second request to another region would be answered by a copy that may be older.
    options.hedging_enabled = Some(false);
    options.read_consistency_strategy = Some(ReadConsistencyStrategy::Session);
    options
}

impl Client {
    /// Reads a URL; nothing is sent yet.
    pub(crate) fn new(url: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let address = Address::parse(url, environment)?;
        let http = Http::new(&address.place, address.tls)?;
        Ok(Self { address, http, made: Mutex::default() })
    }

    /// The time by which an operation that begins now must end.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.address.place.timeout
    }

    /// A client of the account.
    async fn connect(&self) -> std::result::Result<CosmosClient, Ended> {
        let understood = |error: CosmosError| failure::understood(&error);
        tls::install_provider();
        // One request on a connection at a time: a connection that stands still holds up no other.
        let pool = ConnectionPoolOptions::builder()
            .with_is_http2_allowed(false)
            .with_proxy_allowed(false)
            .build()
            .map_err(understood)?;
        let runtime = CosmosRuntime::builder()
            .with_connection_pool(pool)
            .with_default_operation_options(options())
            .build()
            .await
            .map_err(understood)?;
        let endpoint: AccountEndpoint = self.address.endpoint().parse().map_err(understood)?;
        let account = match &self.address.credentials {
            Credentials::Key(key) => {
                AccountReference::with_authentication_key(endpoint, Secret::new(key.clone()))
            }
            Credentials::Token(token) => {
                AccountReference::with_credential(endpoint, Arc::new(Bearer(token.clone())))
            }
        };
        // Without a preference the SDK takes the account's own order.
        let nearest = RoutingStrategy::PreferredRegions(Vec::<Region>::new());
        CosmosClientBuilder::new()
            .with_runtime(runtime)
            // Batches are text in any case, and the others become JSON values here.
            .with_binary_encoding_options(BinaryEncodingOptions::new().with_enabled(false))
            .build(account, nearest)
            .await
            .map_err(understood)
    }

    /// The container, looked up once.
    async fn container(&self) -> std::result::Result<Arc<ContainerClient>, Ended> {
        let mut made = self.made.lock().await;
        if let Some(container) = &made.container {
            return Ok(container.clone());
        }
        let client = match &made.client {
            Some(client) => client.clone(),
            None => made.client.insert(self.connect().await?).clone(),
        };
        let database = client.database_client(self.address.database().to_owned());
        let container = database.container_client(self.address.container().to_owned(), None).await;
        let container = container.map_err(|error| match failure::understood(&error) {
            // Nothing but the container was asked for.
            Ended::Uncertain(fault) => Ended::Away(fault),
            Ended::Refused(fault) if fault.kind == StoreErrorKind::NotFound => {
                Ended::Refused(Fault::new(
                    StoreErrorKind::NotFound,
                    format!(
                        "there is no container {} in a database {}",
                        self.address.container(),
                        self.address.database()
                    ),
                ))
            }
            other => other,
        })?;
        Ok(made.container.insert(Arc::new(container)).clone())
    }

    /// Sends a request once. A request that is not answered in time may have happened.
    pub(crate) async fn once<T, F>(
        &self,
        deadline: Instant,
        request: impl FnOnce(Arc<ContainerClient>) -> F,
    ) -> std::result::Result<T, Ended>
    where
        F: Future<Output = std::result::Result<T, CosmosError>>,
    {
        let away = |_| Ended::Away(Fault::unavailable("no connection in time"));
        let limit = deadline.min(Instant::now() + CONNECT_LIMIT);
        let container = timeout_at(limit, self.container()).await.map_err(away)??;
        let Ok(ended) = timeout_at(deadline, request(container)).await else {
            let late = Fault::unavailable("the service does not answer in time");
            return Err(Ended::Uncertain(late));
        };
        let ended = ended.map_err(|error| failure::understood(&error));
        if let Err(Ended::Refused(fault)) = &ended
            && fault.kind == StoreErrorKind::NotFound
        {
            // The container was deleted, and may be made again.
            self.made.lock().await.container = None;
        }
        ended
    }

    /// Sends a request that may be done twice, until it is answered.
    pub(crate) async fn send<T, F>(
        &self,
        deadline: Instant,
        request: impl Fn() -> F,
    ) -> std::result::Result<T, Fault>
    where
        F: Future<Output = std::result::Result<T, Ended>>,
    {
        let mut patience = Patience::default();
        loop {
            match request().await {
                Ok(answer) => return Ok(answer),
                Err(ended) if !ended.may_repeat() => return Err(ended.fault()),
                Err(ended) => {
                    if !patience.wait(ended.pause(), deadline).await {
                        return Err(ended.fault());
                    }
                }
            }
        }
    }

    /// A page of what a query finds: in a partition, or (none) in all.
    pub(crate) async fn page(
        &self,
        query: &Query,
        partition: Option<&str>,
        deadline: Instant,
    ) -> std::result::Result<Page, Fault> {
        let rows = NonZeroU32::new(self.address.page_rows).map(MaxItemCountHint::Limit);
        let ask = |container: Arc<ContainerClient>| async move {
            let mut options = QueryOptions::default();
            options.feed.max_item_count = rows;
            if partition.is_none() {
                // No session has seen all partitions.
                options.operation.read_consistency_strategy =
                    Some(ReadConsistencyStrategy::LatestCommitted);
            }
            let scope = match partition {
                Some(partition) => FeedScope::partition(partition.to_owned()),
                None => FeedScope::full_container(),
            };
            let found = container.query_items::<Json>(query.clone(), scope, Some(options)).await?;
            next_page(Pages { pages: Box::new(found.into_pages()), in_one: partition.is_some() })
                .await
        };
        self.send(deadline, || self.once(deadline, ask)).await
    }

    /// The next page of a query.
    ///
    /// # Errors
    /// The caller begins the query again.
    pub(crate) async fn more(
        &self,
        pages: Pages,
        deadline: Instant,
    ) -> std::result::Result<Page, Fault> {
        self.once(deadline, |_| next_page(pages)).await.map_err(Ended::fault)
    }

    /// Makes the container, and its database, unless they are there.
    pub(crate) async fn make_container(&self, deadline: Instant) -> std::result::Result<(), Fault> {
        match timeout_at(deadline, self.make()).await {
            Ok(made) => made.map_err(Ended::fault),
            Err(_) => Err(Fault::unavailable("the service does not answer in time")),
        }
    }

    async fn make(&self) -> std::result::Result<(), Ended> {
        match self.container().await {
            Err(Ended::Refused(fault)) if fault.kind == StoreErrorKind::NotFound => {}
            other => return other.map(drop),
        }
        // It was made on the way to the container.
        let Some(client) = self.made.lock().await.client.clone() else { return Ok(()) };
        let (database, container) = (self.address.database(), self.address.container());
        let is_there = |error: &CosmosError| error.status().is_conflict();
        let refused = |error: &CosmosError| match failure::understood(error) {
            Ended::Refused(fault) if fault.kind == StoreErrorKind::Refused => {
                Ended::Refused(Fault::new(
                    fault.kind,
                    format!(
                        "the database {database} and its container {container} (partition key \
                         /{PARTITION}) are not there, and these credentials may not make them: \
                         {}",
                        fault.detail
                    ),
                ))
            }
            other => other,
        };
        match client.create_database(database, None).await {
            Err(error) if !is_there(&error) => return Err(refused(&error)),
            _ => {}
        }
        let properties =
            ContainerProperties::new(container.to_owned(), format!("/{PARTITION}").into());
        match client.database_client(database).create_container(properties, None).await {
            Err(error) if !is_there(&error) => Err(refused(&error)),
            _ => self.container().await.map(drop),
        }
    }
}

/// The page that comes next, and the query behind it.
async fn next_page(mut query: Pages) -> std::result::Result<Page, CosmosError> {
    let Some(page) = query.pages.next().await.transpose()? else { return Ok((Vec::new(), None)) };
    let is_last = query.in_one && page.headers().continuation().is_none();
    Ok((page.into_items(), (!is_last).then_some(query)))
}
