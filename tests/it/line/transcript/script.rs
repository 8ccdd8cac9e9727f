//! What the two ends of a transcript are asked to do: every frame goes in each direction in which it can go.

use bytes::{Bytes, BytesMut};
use linesman::wire::frame::{self, Code, Frame, Refusal};

use super::text::{Act, End, Entry};

/// Of a hub's request: what the agent reads of it belongs to the kind.
const API: &str = r#"{"id":"0190","epoch":7,"traceparent":"00-01-02-01","assertion":"a.b.c"}"#;

pub(super) fn script() -> Vec<Entry> {
    let exchanges = exchanges().into_iter();
    let failures = failures().into_iter();
    let leaving = leaving().into_iter();
    let by = |(end, act)| Entry::Act(end, act);
    let mut script: Vec<Entry> = exchanges.chain(failures).map(by).collect();
    // Both ask whether the other is there.
    script.push(Entry::Wait(12_000));
    script.extend(leaving.map(by));
    script.push(Entry::Wait(1000));
    script
}

/// A request each way, and more than a window of a stream each way: what was read gives room.
fn exchanges() -> Vec<(End, Act)> {
    use End::{Agent, Hub};
    let get = "GET /api/v1/pods HTTP/1.1\r\nhost: kube\r\n\r\n";
    let ok = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
    let report = "POST /v1/clusters/eu1/reports HTTP/1.1\r\n\r\n";
    vec![
        (Hub, open(2, 1, 0, API)),
        (Hub, write(2, get)),
        (Hub, Act::Finish { id: 2 }),
        (Agent, write(2, ok)),
        (Agent, Act::Finish { id: 2 }),
        (Agent, open(1, 3, 0, "{}")),
        (Agent, write(1, report)),
        (Agent, Act::Finish { id: 1 }),
        (Hub, write(1, "HTTP/1.1 204 No Content\r\n\r\n")),
        (Hub, Act::Finish { id: 1 }),
        (Agent, open(3, 2, 0, "{}")),
        (Agent, bulk(3)),
        (Hub, Act::Read { id: 3 }),
        (Agent, bulk(3)),
        (Hub, bulk(3)),
        (Agent, Act::Read { id: 3 }),
        (Hub, bulk(3)),
        (Agent, Act::Finish { id: 3 }),
        (Hub, Act::Finish { id: 3 }),
    ]
}

/// What one end does not serve, what fails behind the other, and an end that reads no more: what it writes still goes.
fn failures() -> Vec<(End, Act)> {
    use End::{Agent, Hub};
    let unserved = "the hub does not serve streams of this kind";
    vec![
        (Agent, open(5, 4, 1, "")),
        (Agent, write(5, "state")),
        (Hub, reset(5, 2, unserved)),
        (Hub, open(4, 1, 0, API)),
        (Agent, reset(4, 16, "10.0.0.1:443")),
        (Hub, open(6, 1, 1, API)),
        (Hub, write(6, "upload")),
        (Agent, Act::Stop { id: 6, code: 0 }),
        (Agent, write(6, "HTTP/1.1 413 Payload Too Large\r\n\r\n")),
        (Agent, Act::Finish { id: 6 }),
        (Agent, open(7, 2, 0, "{}")),
        (Hub, Act::Stop { id: 7, code: 1 }),
        (Hub, Act::Finish { id: 7 }),
    ]
}

fn leaving() -> Vec<(End, Act)> {
    use End::{Agent, Hub};
    vec![
        (Hub, open(8, 1, 0, API)),
        (Agent, drain("the agent stops")),
        (Hub, drain("the hub stops")),
        (Agent, Act::Finish { id: 8 }),
        (Hub, Act::Finish { id: 8 }),
    ]
}

fn open(id: u32, kind: u8, class: u8, meta: &str) -> Act {
    let meta = meta.to_owned();
    Act::Open {
        id,
        kind,
        class,
        meta,
    }
}

fn write(id: u32, text: &str) -> Act {
    let (times, text) = (1, text.to_owned());
    Act::Write { id, times, text }
}

fn bulk(id: u32) -> Act {
    let (times, text) = (60_000, "a".to_owned());
    Act::Write { id, times, text }
}

fn drain(text: &str) -> Act {
    Act::Drain {
        code: 9,
        retry_after_ms: 2000,
        drain_ms: 60_000,
        text: text.to_owned(),
    }
}

fn reset(id: u32, code: u16, text: &str) -> Act {
    let text = text.to_owned();
    Act::Reset { id, code, text }
}

pub(super) fn refusals() -> impl Iterator<Item = Entry> {
    let refusals = [
        (6, 0, "HELLO is not what the protocol says"),
        (12, 0, "the cluster was removed or its key revoked"),
        (32, 0, "signed for another hub"),
        (33, 0, "the key is not registered for the cluster"),
        (34, 0, "the hub speaks protocol 1 to 1"),
        (35, 2000, "many agents connect"),
        (36, 2000, "the hub's store does not answer"),
    ];
    refusals.into_iter().map(|(code, retry_after_ms, text)| {
        let text = text.to_owned();
        let message = refuse(code, retry_after_ms, &text);
        Entry::Refusal(code, retry_after_ms, text, message)
    })
}

pub(super) fn refuse(code: u16, retry_after_ms: u32, text: &str) -> Bytes {
    let mut message = BytesMut::new();
    let refusal = Refusal {
        code: Code::from(code),
        retry_after_ms,
        text: text.to_owned(),
    };
    frame::encode(&Frame::Refuse(refusal), &mut message);
    message.freeze()
}
