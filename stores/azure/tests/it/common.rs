//! Helpers of this crate's tests: signatures, and plain requests.

#![allow(dead_code, reason = "each test program uses its part")]

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use emmer_test_servers::azurite::{ACCOUNT, KEY};

/// A shared access signature for tables of the emulator's account with these permissions, as it
/// follows a `?`.
pub(crate) fn sas(permissions: &str) -> String {
    let (services, kinds, until, version) = ("t", "sco", "2099-01-01T00:00:00Z", "2019-02-02");
    let text = format!("{ACCOUNT}\n{permissions}\n{services}\n{kinds}\n\n{until}\n\n\n{version}\n");
    let key = hmac::Key::new(hmac::HMAC_SHA256, &BASE64.decode(KEY).unwrap());
    let signature = BASE64.encode(hmac::sign(&key, text.as_bytes()).as_ref());
    let signature =
        signature.replace('%', "%25").replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    format!("sv={version}&ss={services}&srt={kinds}&sp={permissions}&se={until}&sig={signature}")
}

/// The URL of a store that has this signature.
pub(crate) fn url_with(sas: &str, port: u16) -> String {
    let sas = sas.replace('%', "%25").replace('&', "%26");
    format!("azure-table://127.0.0.1:{port}/{ACCOUNT}?tls=false&sas_token={sas}")
}

/// A plain request, as an administrator's tool sends it: status and body.
pub(crate) async fn request(port: u16, method: &str, resource: &str, body: &str) -> (u16, String) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let joint = if resource.contains('?') { '&' } else { '?' };
    let url = format!("http://127.0.0.1:{port}/{ACCOUNT}/{resource}{joint}{}", sas("raud"));
    let answer = client
        .request(method.parse().unwrap(), url)
        .header("accept", "application/json;odata=nometadata")
        .header("content-type", "application/json")
        .header("if-match", "*")
        .body(body.to_owned())
        .send()
        .await
        .unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}
