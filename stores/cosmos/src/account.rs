//! The account's own description, which the SDK does not show: its regions and consistency.

use std::time::SystemTime;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use emmer_core::Timestamp;
use emmer_store::{ClockDifference, StoreErrorKind};
use emmer_store_keyvalue::azure::http_date;
use emmer_store_keyvalue::http::{Http, Request};
use emmer_store_keyvalue::{Failure, Fault};
use reqwest::Method;
use serde_json::Value as Json;
use tokio::time::Instant;

use crate::address::{Address, Credentials};

/// The version of the API.
const VERSION: &str = "2018-12-31";

/// An account as it describes itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// The version of the service's gateway.
    pub(crate) version: String,
    /// The consistency of reads that ask for none.
    pub(crate) consistency: String,
    /// The regions that take commits, each by itself if there are several.
    pub(crate) write_regions: Vec<String>,
    /// The number of all regions.
    pub(crate) regions: usize,
    /// Each region takes commits, and they are made one later.
    pub(crate) many_write: bool,
}

impl Account {
    fn of(json: &Json, version: &str) -> Option<Self> {
        let regions = |name: &str| {
            let all = json.get(name)?.as_array()?.iter();
            Some(all.filter_map(|one| Some(one.get("name")?.as_str()?.to_owned())).collect())
        };
        let write_regions: Vec<String> = regions("writableLocations")?;
        let all: Vec<String> = regions("readableLocations")?;
        let text = |json: Option<&Json>| json.and_then(Json::as_str).unwrap_or_default().to_owned();
        let policy = json.get("userConsistencyPolicy");
        Some(Self {
            version: version.trim_start_matches("version=").to_owned(),
            consistency: text(policy.and_then(|policy| policy.get("defaultConsistencyLevel"))),
            many_write: json.get("enableMultipleWriteLocations") == Some(&Json::Bool(true)),
            write_regions,
            regions: all.len(),
        })
    }
}

/// The request for an account's description, signed now.
fn request(credentials: &Credentials) -> Result<Request, Fault> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp::from_millis(i64::try_from(now.as_millis()).unwrap_or(i64::MAX));
    let date = http_date(now).to_ascii_lowercase();
    let authorization = match credentials {
        Credentials::Key(key) => {
            let key = hmac::Key::new(hmac::HMAC_SHA256, &BASE64.decode(key).unwrap_or_default());
            let signed = hmac::sign(&key, format!("get\n\n\n{date}\n\n").as_bytes());
            format!("type=master&ver=1.0&sig={}", BASE64.encode(signed.as_ref()))
        }
        Credentials::Token(token) => format!("type=aad&ver=1.0&sig={}", token.now()?),
    };
    let authorization: String = authorization
        .bytes()
        .map(|byte| match byte {
            b'-' | b'_' | b'.' => char::from(byte).to_string(),
            byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect();
    let mut request = Request::new(Method::GET, "/", "");
    request.headers = vec![
        ("x-ms-date".into(), date),
        ("x-ms-version".into(), VERSION.to_owned()),
        ("authorization".into(), authorization),
    ];
    Ok(request)
}

/// Asks for the account's description.
pub(crate) async fn describe(
    http: &Http,
    address: &Address,
    deadline: Instant,
) -> Result<Account, Fault> {
    let request = request(&address.credentials)?;
    let answer = http.send(&request, deadline, true).await.map_err(Failure::fault)?;
    let kind = match answer.status {
        200 => {
            let version = answer.header("x-ms-gatewayversion").unwrap_or_default();
            let account = serde_json::from_slice::<Json>(&answer.body).ok();
            let account = account.as_ref().and_then(|json| Account::of(json, version));
            return account.ok_or_else(|| {
                Fault::corrupt(format!("this is not a Cosmos DB account: {}", answer.words()))
            });
        }
        401 | 403 => StoreErrorKind::Refused,
        404 => StoreErrorKind::NotFound,
        _ => StoreErrorKind::Unavailable,
    };
    Err(Fault::new(kind, answer.words()))
}

/// The difference of the service's clock and this host's.
pub(crate) async fn clock(
    http: &Http,
    address: &Address,
    deadline: Instant,
) -> Option<ClockDifference> {
    http.clock(&request(&address.credentials).ok()?, deadline).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_account_is_understood() {
        let region =
            |name: &str| json!({ "name": name, "databaseAccountEndpoint": "https://example.com" });
        let mut json = json!({
            "id": "acct",
            "writableLocations": [region("East US")],
            "readableLocations": [region("East US"), region("West US")],
            "enableMultipleWriteLocations": false,
            "userConsistencyPolicy": { "defaultConsistencyLevel": "Session" },
        });
        let account = Account::of(&json, "version=2.14.0").unwrap();
        assert_eq!(account.version, "2.14.0");
        assert_eq!((account.regions, account.many_write), (2, false));
        assert_eq!(account.write_regions, ["East US"]);
        assert_eq!(account.consistency, "Session");
        json["enableMultipleWriteLocations"] = true.into();
        assert!(Account::of(&json, "").unwrap().many_write);
        assert_eq!(Account::of(&json!({ "hello": 1 }), ""), None);
    }

    #[test]
    fn a_key_signs_and_a_token_is_sent() {
        let key = Credentials::Key("a2V5".to_owned());
        let header = |credentials: &Credentials| {
            let request = request(credentials).unwrap();
            request.headers.into_iter().find(|(name, _)| name == "authorization").unwrap().1
        };
        assert!(header(&key).starts_with("type%3Dmaster%26ver%3D1.0%26sig%3D"));
        let token = emmer_store_keyvalue::azure::Token::of("abc.d").unwrap();
        let token = Credentials::Token(std::sync::Arc::new(token));
        assert_eq!(header(&token), "type%3Daad%26ver%3D1.0%26sig%3Dabc.d");
    }
}
