//! L40: bodies of whoever has not said who they are.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::stream;
use tokio::time::timeout;

use super::support::TestHub;

/// Before the hub would give up a body that does not come.
const AT_ONCE: Duration = Duration::from_secs(20);

/// Where to, with which headers, what, and the code of the answer.
type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], reqwest::Body, u16);

fn never() -> reqwest::Body {
    reqwest::Body::wrap_stream(stream::pending::<Result<Vec<u8>, Infallible>>())
}

/// What the head says is judged before a body is waited for, and of a login it is a little one.
#[tokio::test]
async fn nobody_is_waited_for_whose_head_says_no() {
    let hub = TestHub::start("strangers").await;
    let (url, form) = (&hub.hub.config.url, "application/x-www-form-urlencoded");
    let own = [("origin", url.as_str()), ("content-type", form)];
    let other = [("origin", "https://evil.example"), ("content-type", form)];
    let little = || format!("code={}", "x".repeat(5 << 10));
    let rows: [Row<'_>; 10] = [
        ("/v1/join", &[], never(), 401),
        ("/v1/recover", &[], never(), 401),
        ("/v1/clusters/eu1/reports", &[], never(), 401),
        ("/v1/join", &[("linesman-signature", "v2")], never(), 403),
        ("/device", &other, never(), 403),
        ("/device", &own, little().into(), 413),
        ("/v1/login/token", &[], little().into(), 413),
        ("/v1/login/end", &[], little().into(), 413),
        ("/device", &own, "code=AAAA-AAAA".into(), 404),
        ("/device", &own[..1], "code=AAAA-AAAA".into(), 400),
    ];
    for (path, headers, body, code) in rows {
        let answer = timeout(AT_ONCE, hub.send(path, headers, body)).await;
        let answer = answer.unwrap_or_else(|_| panic!("{path}: it waits"));
        assert_eq!(answer.status(), code, "{path} {headers:?}");
    }
    hub.stop().await;
}
