use http::Method;

use super::*;
use crate::hub::proxy::exit::{Exit, Framing};
use crate::kubeapi::path;

fn info(target: &str) -> RequestInfo {
    let (path, query) = target
        .split_once('?')
        .map_or((target, None), |(path, query)| (path, Some(query)));
    path::classify(&Method::GET, path, query).unwrap()
}

fn head(headers: &[(&'static str, &'static str)]) -> HeaderMap {
    let each = headers.iter().map(|&(name, value)| {
        let name = http::HeaderName::from_static(name);
        (name, http::HeaderValue::from_static(value))
    });
    each.collect()
}

/// A word of the hub's own has a place in plain JSON alone.
#[test]
fn a_watch_in_json_alone_is_told_by_an_event() {
    let watch = "/api/v1/pods?watch=1";
    let json = ("content-type", "application/json");
    for (target, headers, told) in [
        (watch, &[json][..], true),
        (
            watch,
            &[("content-type", "application/json;stream=watch")],
            true,
        ),
        ("/api/v1/pods", &[json], false),
        ("/api/v1/namespaces/a/pods/x/log?follow=1", &[json], false),
        (
            "/api/v1/namespaces/a/services/x/proxy/pods?watch=1",
            &[json],
            false,
        ),
        (watch, &[], false),
        (
            watch,
            &[(
                "content-type",
                "application/vnd.kubernetes.protobuf;stream=watch",
            )],
            false,
        ),
        (watch, &[json, ("content-encoding", "gzip")], false),
        (watch, &[json, ("content-length", "3")], false),
    ] {
        let events = Events::of(&info(target), &head(headers));
        assert_eq!(events.is_some(), told, "{target} {headers:?}");
    }
}

#[test]
fn a_word_has_a_place_between_two_events_alone() {
    let event = br#"{"type":"ADDED","object":{"a":["}\"\\",{"b":"\n"}],"c":1}}"#;
    let whole = [&event[..], b"\n"].concat();
    let mut events = Events::default();
    assert!(events.is_between(), "before the first one");
    for _ in 0..2 {
        for (n, byte) in whole.iter().enumerate() {
            events.see(&[*byte]);
            assert_eq!(events.is_between(), n + 1 == whole.len(), "{n}");
        }
    }
    events.see(&[&whole[..], &whole, b"{"].concat());
    assert!(!events.is_between());
    events.see(b"}\n");
    assert!(events.is_between());
}

#[test]
fn what_is_no_event_leaves_no_place_for_good() {
    for strange in [
        "event\n",
        "[1]\n",
        "}\n",
        "\"a\"\n",
        "\u{1f}\n",
        "{}\n7\n",
        "\n",
        "{}\n\n",
        // An event over many lines: which of them is its last, these do not say.
        "{\n  \"object\": {\n  }\n",
    ] {
        let mut events = Events::default();
        events.see(strange.as_bytes());
        assert!(!events.is_between(), "{strange:?}");
        events.see(b"{}\n");
        assert!(!events.is_between(), "{strange:?}");
    }
}

#[test]
fn the_last_event_is_a_line() {
    assert_eq!(
        event(r#"{"kind":"Status"}"#),
        "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\"}}\n"
    );
}

#[test]
fn a_session_ends_with_its_status_and_a_close() {
    let said = frames("{}", "over");
    assert_eq!(said, b"\x82\x03\x03{}\x88\x06\x03\xe8over");
    // Whatever the lengths, these are frames.
    for (status, reason) in [(1, 0), (124, 123), (125, 124), (70_000, 1_000)] {
        let mut seen = Exit::new(Framing::WebSocket);
        let said = frames(&"x".repeat(status), &"y".repeat(reason));
        let close = 2 + 2 + reason.min(WORDS);
        let (first, last) = said.split_at(said.len() - close);
        assert_eq!(last[..2], [0x88, u8::try_from(close - 2).unwrap()]);
        seen.see(first);
        seen.see(&[0x89, 0]);
        assert!(!seen.takes_a_word(), "one status is enough");
    }
}
