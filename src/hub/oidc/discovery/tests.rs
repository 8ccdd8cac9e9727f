use serde_json::{Value, json};

use super::*;

fn document() -> Value {
    json!({
        "issuer": "https://id.example",
        "authorization_endpoint": "https://id.example/auth",
        "token_endpoint": "https://id.example/token",
        "jwks_uri": "https://keys.example/jwks",
    })
}

fn with(changes: &[(&str, Value)]) -> Result<Discovery, DiscoveryError> {
    let mut document = document();
    for (key, value) in changes {
        document[*key] = value.clone();
    }
    read(document.to_string().as_bytes(), "https://id.example")
}

#[test]
fn the_least_document_is_enough() {
    let read = with(&[]).unwrap();
    assert_eq!(
        read,
        Discovery {
            issuer: "https://id.example".to_owned(),
            authorize: "https://id.example/auth".to_owned(),
            token: "https://id.example/token".to_owned(),
            keys: "https://keys.example/jwks".to_owned(),
            userinfo: None,
            revoke: None,
            algorithms: vec![],
            scopes: ["openid", "profile", "email"].map(str::to_owned).to_vec(),
            client_auth: ClientAuth::Basic,
            names_itself: false,
        }
    );
}

#[test]
fn what_the_provider_offers_decides_scopes_algorithms_and_proof() {
    let read = with(&[
        (
            "scopes_supported",
            json!(["openid", "groups", "offline_access", "phone"]),
        ),
        (
            "id_token_signing_alg_values_supported",
            json!(["HS256", "none", "ES256"]),
        ),
        (
            "token_endpoint_auth_methods_supported",
            json!(["client_secret_post"]),
        ),
        (
            "authorization_response_iss_parameter_supported",
            json!(true),
        ),
    ])
    .unwrap();
    assert_eq!(read.scopes, ["openid", "groups", "offline_access"]);
    assert_eq!(read.algorithms, [Algorithm::ES256]);
    assert_eq!(
        (read.client_auth, read.names_itself),
        (ClientAuth::Post, true)
    );
}

#[test]
fn a_document_that_could_mislead_is_refused() {
    for (key, value) in [
        ("issuer", json!("https://id.example/")),
        ("issuer", json!("https://evil.example")),
        ("token_endpoint", json!("http://id.example/token")),
        ("token_endpoint", json!("http://127.0.0.1/token")),
        ("jwks_uri", json!("file:///etc/passwd")),
        ("authorization_endpoint", json!("javascript:alert(1)")),
        ("userinfo_endpoint", json!("ftp://id.example")),
        ("response_types_supported", json!(["id_token"])),
        ("code_challenge_methods_supported", json!(["plain"])),
        (
            "id_token_signing_alg_values_supported",
            json!(["none", "HS256"]),
        ),
        ("jwks_uri", json!(7)),
    ] {
        assert!(with(&[(key, value.clone())]).is_err(), "{key} {value}");
    }
}

#[test]
fn an_issuer_is_https_or_this_machine() {
    for (url, fits) in [
        ("https://id.example/realms/x", true),
        ("http://127.0.0.1:4000", true),
        ("http://localhost:4000", true),
        ("http://id.example", false),
        ("https://id.example?x=1", false),
        ("https://user@id.example", false),
        ("id.example", false),
    ] {
        assert_eq!(is_issuer(url), fits, "{url}");
    }
}
