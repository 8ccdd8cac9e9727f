//! A hub that takes connections and says nothing.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::Home;

/// `--timeout` holds whatever a call of its own may take, and it is the hub that is blamed.
#[test]
fn a_wait_ends_in_its_time_where_the_hub_says_nothing() {
    let home = Home::new();
    // The system takes connections for it; nobody ever reads them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    home.session(&url, "lmt1.a.b", None);
    let began = Instant::now();
    let waited = home.run(&["cluster", "wait", "eu1", "--timeout", "1s"]);
    waited.fails(6, "1s passed and the hub did not answer");
    assert!(waited.err.contains("next:  check the way to"), "{waited:?}");
    assert!(began.elapsed() < Duration::from_secs(8), "{waited:?}");
}
