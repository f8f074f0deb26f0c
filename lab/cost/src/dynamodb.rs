//! What the store costs over Amazon's SDK by hand, on this machine, in one run. It starts an
//! emulator of its own, with its data in memory: of the service's own times it says nothing.
//!
//! By hand is what a careful user would do with the SDK, over the same HTTP client: a membership
//! commit as one `TransactWriteItems`, which updates the version row by its number and the silo's
//! but for its heartbeat, a read as one consistent query whose values are parsed.

use crate::measure::{ByHand, Outcome, measure, silo};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{
    BehaviorVersion, Config, Credentials, HttpClient, Region, RuntimeComponents,
};
use aws_sdk_dynamodb::error::{BuildError, ConnectorError};
use aws_sdk_dynamodb::types::builders::UpdateBuilder;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue as Attribute, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType, TransactWriteItem, Update,
};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use emmer_store_dynamodb::DynamoDbStore;
use emmer_test_servers::dynamodb::IN_MEMORY;
use emmer_test_servers::suite::Store;
use emmer_test_servers::{DynamoDbServer, store};

const STORE: Store = store!(DynamoDbStore);
const TABLE: &str = "byhand";

/// The SDK's HTTP over reqwest, in as few lines as it takes.
#[derive(Clone, Debug)]
struct Reqwest(reqwest::Client);

impl HttpClient for Reqwest {
    fn http_connector(
        &self,
        _: &HttpConnectorSettings,
        _: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Reqwest {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let mut sent =
            self.0.post(request.uri()).body(request.body().bytes().unwrap_or_default().to_vec());
        for (name, value) in request.headers() {
            sent = sent.header(name, value);
        }
        HttpConnectorFuture::new(async move {
            let io = |e: reqwest::Error| ConnectorError::io(Box::new(e));
            let answer = sent.send().await.map_err(io)?;
            let status = StatusCode::try_from(answer.status().as_u16());
            let status = status.map_err(|e| ConnectorError::other(Box::new(e), None))?;
            Ok(HttpResponse::new(status, SdkBody::from(answer.bytes().await.map_err(io)?)))
        })
    }
}

/// The SDK, by hand.
struct Raw(Client);

fn text(text: &(impl ToString + ?Sized)) -> Attribute {
    Attribute::S(text.to_string())
}

fn number(number: &impl ToString) -> Attribute {
    Attribute::N(number.to_string())
}

/// The columns of a silo, as one would write them.
fn columns(n: u64) -> Vec<(&'static str, Attribute)> {
    let silo = silo(n);
    vec![
        ("DeploymentId", text("cost")),
        ("Address", text(&silo.address.ip())),
        ("Port", number(&silo.address.port())),
        ("Generation", number(&n)),
        ("HostName", text(&silo.host_name)),
        ("Status", text("Active")),
        ("ProxyPort", number(&0)),
        ("Primary", text("false")),
        ("RoleName", text("")),
        ("InstanceName", text(&silo.instance_name)),
        ("UpdateZone", number(&0)),
        ("FaultZone", number(&0)),
        ("SuspectingSilos", Attribute::L(Vec::new())),
        ("SuspectingTimes", Attribute::L(Vec::new())),
        ("StartTime", text(&silo.start_time)),
    ]
}

fn update(row_key: &str, columns: Vec<(&'static str, Attribute)>) -> UpdateBuilder {
    let mut update = Update::builder()
        .table_name(TABLE)
        .key("PartitionKey", text("cost"))
        .key("RowKey", text(row_key));
    for (name, value) in columns {
        update = update.expression_attribute_names(format!("#{name}"), name);
        update = update.expression_attribute_values(format!(":{name}"), value);
    }
    update
}

fn set(columns: &[(&'static str, Attribute)]) -> String {
    let each: Vec<String> = columns.iter().map(|(name, _)| format!("#{name} = :{name}")).collect();
    format!("SET {}", each.join(", "))
}

/// Writes a silo's row and leaves the heartbeat of one that is there alone.
fn write_silo(n: u64) -> Result<Update, BuildError> {
    let columns = columns(n);
    let set = format!("{}, IAmAliveTime = if_not_exists(IAmAliveTime, :alive)", set(&columns));
    let update = update(&format!("10.0.0.1-11111-{n}"), columns).update_expression(set);
    update.expression_attribute_values(":alive", text(&silo(n).i_am_alive_time)).build()
}

fn write_version(now: i64) -> UpdateBuilder {
    let columns = vec![("DeploymentId", text("cost")), ("MembershipVersion", number(&now))];
    let set = set(&columns);
    update("VersionRow", columns).update_expression(set)
}

fn transaction(updates: impl IntoIterator<Item = Update>) -> Vec<TransactWriteItem> {
    updates.into_iter().map(|update| TransactWriteItem::builder().update(update).build()).collect()
}

impl Raw {
    async fn open(port: u16) -> Outcome<Self> {
        let http = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build()?;
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("local"))
            .endpoint_url(format!("http://127.0.0.1:{port}"))
            .credentials_provider(Credentials::new("local", "local", None, None, "cost"))
            .http_client(Reqwest(http))
            .build();
        let raw = Self(Client::from_conf(config));
        let mut create =
            raw.0.create_table().table_name(TABLE).billing_mode(BillingMode::PayPerRequest);
        for (name, kind) in [("PartitionKey", KeyType::Hash), ("RowKey", KeyType::Range)] {
            let attribute = AttributeDefinition::builder().attribute_name(name);
            create = create
                .attribute_definitions(attribute.attribute_type(ScalarAttributeType::S).build()?);
            create = create.key_schema(
                KeySchemaElement::builder().attribute_name(name).key_type(kind).build()?,
            );
        }
        create.send().await?;
        raw.write(transaction([write_version(0).build()?])).await?;
        Ok(raw)
    }

    async fn write(&self, actions: Vec<TransactWriteItem>) -> Outcome<()> {
        self.0.transact_write_items().set_transact_items(Some(actions)).send().await?;
        Ok(())
    }
}

impl ByHand for Raw {
    async fn commit(&self, now: i64, n: u64) -> Outcome<()> {
        let version = write_version(now).condition_expression("MembershipVersion = :before");
        let version = version.expression_attribute_values(":before", number(&(now - 1))).build()?;
        self.write(transaction([version, write_silo(n)?])).await
    }

    async fn read(&self) -> Outcome<usize> {
        let query = self.0.query().table_name(TABLE).consistent_read(true);
        let query = query.key_condition_expression("PartitionKey = :cluster");
        let answer = query.expression_attribute_values(":cluster", text("cost")).send().await?;
        Ok(answer.items().len())
    }
}

/// Measures.
pub(crate) async fn run(_words: &[String]) -> Outcome<()> {
    let server = DynamoDbServer::start_with(&[IN_MEMORY])?;
    measure(&server.url(), STORE, || Raw::open(server.port())).await
}
