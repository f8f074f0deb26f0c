//! Helpers of this crate's tests: plain requests, as an administrator's tool sends them.

#![allow(dead_code, reason = "each test program uses its part")]

use serde_json::Value as Json;

/// The server's answer to an operation: status and body. The emulator checks no signature.
pub(crate) async fn request(port: u16, operation: &str, body: &Json) -> (u16, Json) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let authorization = "AWS4-HMAC-SHA256 Credential=local/20261122/local/dynamodb/aws4_request, \
        SignedHeaders=host, Signature=x";
    let answer = client
        .post(format!("http://127.0.0.1:{port}/"))
        .header("x-amz-target", format!("DynamoDB_20120810.{operation}"))
        .header("content-type", "application/x-amz-json-1.0")
        .header("x-amz-date", "20261122T000000Z")
        .header("authorization", authorization)
        .body(body.to_string())
        .send()
        .await
        .unwrap();
    let status = answer.status().as_u16();
    (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap_or_default())
}
