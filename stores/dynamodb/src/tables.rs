//! Tables: one of the service for each declaration, and one, named by the prefix alone, that keeps
//! the declarations.

use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue as Attribute, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType, TableDescription, TableStatus,
};
use emmer_store::document::declaration;
use emmer_store::{StoreErrorKind, TableDecl};
use emmer_store_keyvalue::{Answered, Fault, Tables};
use tokio::time::{Instant, sleep};

use crate::client::Ended;
use crate::commit::Expression;
use crate::item;
use crate::store::DynamoDb;

/// The key of the table of declarations: the name of a table.
const TABLE: &str = "Table";
/// The attribute that holds a declaration.
const DECLARATION: &str = "Declaration";
/// Time that the service may take to make a table. Usually it takes a few seconds.
const MAKE_LIMIT: Duration = Duration::from_secs(60);
/// Interval at which it is asked whether the table is there.
const MAKE_POLL: Duration = Duration::from_millis(250);
/// The longest name of a table.
const TABLE_NAME_BYTES_MAX: usize = 255;

impl DynamoDb {
    /// The name of a table. No declared name has a dot: all tables are apart, whatever their
    /// prefixes.
    pub(crate) fn name_of(&self, decl: &TableDecl) -> String {
        format!("{}.{}", self.declarations(), decl.name)
    }

    /// The name of the table of declarations.
    pub(crate) fn declarations(&self) -> &str {
        self.client().address.layout.prefix()
    }

    /// Description of a table; none when there is none.
    pub(crate) async fn described(
        &self,
        name: &str,
        deadline: Instant,
    ) -> Result<Option<TableDescription>, Fault> {
        let client = self.client();
        match client.send(deadline, || client.sdk.describe_table().table_name(name).send()).await {
            Ok(answer) => Ok(answer.table),
            Err(ended) => match ended.fault() {
                fault if fault.kind == StoreErrorKind::NotFound => Ok(None),
                fault => Err(fault),
            },
        }
    }

    /// Makes a table with these keys, all of them text, unless there is one of its name, and waits
    /// until it can be used.
    async fn make_table(&self, name: &str, keys: &[&str]) -> Result<(), Fault> {
        let limit = Instant::now() + MAKE_LIMIT;
        loop {
            let found = self.described(name, self.client().deadline()).await?;
            match found.and_then(|table| table.table_status) {
                Some(TableStatus::Active | TableStatus::Updating) => return Ok(()),
                Some(_) if Instant::now() > limit => {
                    let detail = format!("the table {name} is not ready after {MAKE_LIMIT:?}");
                    return Err(Fault::unavailable(detail));
                }
                Some(_) => sleep(MAKE_POLL).await,
                None => self.create(name, keys).await?,
            }
        }
    }

    async fn create(&self, name: &str, keys: &[&str]) -> Result<(), Fault> {
        let client = self.client();
        let invalid = |e: aws_sdk_dynamodb::error::BuildError| Fault::corrupt(e.to_string());
        let (mut attributes, mut schema) = (Vec::new(), Vec::new());
        for (key, kind) in keys.iter().zip([KeyType::Hash, KeyType::Range]) {
            let attribute = AttributeDefinition::builder().attribute_name(*key);
            attributes
                .push(attribute.attribute_type(ScalarAttributeType::S).build().map_err(invalid)?);
            let element = KeySchemaElement::builder().attribute_name(*key).key_type(kind);
            schema.push(element.build().map_err(invalid)?);
        }
        let sent = client.send(client.deadline(), || {
            let create =
                client.sdk.create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
            let create = create.set_attribute_definitions(Some(attributes.clone()));
            create.set_key_schema(Some(schema.clone())).send()
        });
        match sent.await {
            Ok(_) => Ok(()),
            Err(ended) => match ended.fault() {
                // Another process makes it.
                fault if fault.detail.starts_with("ResourceInUseException") => Ok(()),
                fault => Err(fault),
            },
        }
    }
}

impl Tables for DynamoDb {
    async fn make(&self, decl: &'static TableDecl, deadline: Instant) -> Answered<()> {
        let (name, declarations) = (self.name_of(decl), self.declarations());
        if name.len() > TABLE_NAME_BYTES_MAX {
            let detail = format!(
                "{name} is longer than the {TABLE_NAME_BYTES_MAX} letters of a table's name"
            );
            return Err(Fault::new(StoreErrorKind::Invalid, detail));
        }
        let known = self.shape(decl, deadline).await?.is_some();
        self.make_table(&name, &[decl.partition_key, decl.row_key]).await?;
        if known {
            return Ok(());
        }
        self.make_table(declarations, &[TABLE]).await?;
        let mut expression = Expression::default();
        let condition = format!("attribute_not_exists({})", expression.name(TABLE));
        let client = self.client();
        let sent = client.send(client.deadline(), || {
            let put = client.sdk.put_item().table_name(declarations);
            let put = put.item(TABLE, Attribute::S(decl.name.to_owned()));
            let put = put.item(DECLARATION, Attribute::S(declaration(decl)));
            let put = put.condition_expression(&condition);
            put.set_expression_attribute_names(Some(expression.names.clone())).send()
        });
        match sent.await {
            // The second process finds the table of the first one, which is then compared.
            Ok(_) | Err(Ended::Conditions { .. }) => Ok(()),
            Err(ended) => Err(ended.fault()),
        }
    }

    async fn shape(
        &self,
        decl: &'static TableDecl,
        deadline: Instant,
    ) -> Answered<Option<Vec<u8>>> {
        let client = self.client();
        let sent = client.send(deadline, || {
            let get = client.sdk.get_item().table_name(self.declarations()).consistent_read(true);
            get.key(TABLE, Attribute::S(decl.name.to_owned())).send()
        });
        let item = match sent.await {
            Ok(answer) => answer.item.unwrap_or_default(),
            Err(ended) => match ended.fault() {
                fault if fault.kind == StoreErrorKind::NotFound => return Ok(None),
                fault => return Err(fault),
            },
        };
        Ok(item::text(&item, DECLARATION).map(|text| text.as_bytes().to_vec()))
    }
}
