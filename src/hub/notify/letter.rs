//! A notice as its receivers read it. Pure.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use super::board::{Notice, Severity, State};
use crate::heal::DUPLICATE_AGENT;
use crate::keys;
use crate::secret::Secret;
use crate::wire::id::ClusterName;

/// Clusters that a line for people names.
const NAMED: usize = 10;

/// A notice on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// A UUID; a repeated delivery has the same one.
    pub id: String,
    /// RFC 3339.
    pub at: String,
    pub hub_id: String,
    pub hub_url: String,
    pub notice: Notice,
}

/// The JSON object of the generic webhook (`docs/operating.md`).
pub fn body(letter: &Letter) -> Value {
    let Letter {
        id,
        at,
        hub_id,
        hub_url,
        notice,
    } = letter;
    let mut body = json!({
        "version": 1, "id": id, "at": at, "hub": {"id": hub_id, "url": hub_url},
        "next": next(notice),
    });
    let notice = serde_json::to_value(notice).unwrap_or_default();
    if let (Value::Object(body), Value::Object(notice)) = (&mut body, notice) {
        body.extend(notice);
    }
    body
}

/// `v1;t=<unix seconds>;sig=<hex>`: HMAC-SHA256 under the shared secret over `v1\n<t>\n<body>`. The time lets a receiver
/// refuse what is replayed.
pub fn signature(secret: &Secret<String>, time: i64, body: &str) -> String {
    // HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()) else {
        return String::new();
    };
    for part in ["v1\n", &time.to_string(), "\n", body] {
        mac.update(part.as_bytes());
    }
    let sum = keys::hex(&mac.finalize().into_bytes());
    format!("v1;t={time};sig={sum}")
}

/// What Slack's incoming webhooks take.
pub fn slack(letter: &Letter) -> Value {
    let notice = &letter.notice;
    let mark = match (notice.state, notice.severity) {
        (State::Resolved | State::Healed, _) => ":white_check_mark:",
        (_, Severity::Critical) => ":red_circle:",
        (_, Severity::Warning) => ":large_yellow_circle:",
        (_, Severity::Info) => ":information_source:",
    };
    let word = match notice.state {
        State::Open => "",
        State::Reminder => " still",
        State::Resolved => " is over:",
        State::Healed => " healed:",
    };
    let text = format!(
        "{mark} *{}*{word} *{}* (since {})\n{}\n`{}`",
        escaped(&clusters(notice)),
        escaped(&notice.class),
        escaped(&notice.since),
        escaped(&notice.text),
        escaped(&next(notice)),
    );
    json!({ "text": text })
}

fn clusters(notice: &Notice) -> String {
    let named: Vec<&str> = notice
        .clusters
        .iter()
        .take(NAMED)
        .map(ClusterName::as_str)
        .collect();
    if named.is_empty() {
        return "the hub".to_owned();
    }
    let more = notice.clusters_total.saturating_sub(named.len());
    let named = named.join(", ");
    if more == 0 {
        named
    } else {
        format!("{named} and {more} more")
    }
}

/// What to do next, as a command.
fn next(notice: &Notice) -> String {
    if let Some(next) = &notice.next {
        return next.clone();
    }
    match (notice.clusters.as_slice(), notice.state) {
        (_, State::Resolved | State::Healed) => "linesman heal list".to_owned(),
        (_, State::Open | State::Reminder) if notice.class == "HostKeyMismatch" => {
            "linesman githost show".to_owned()
        }
        ([one], _) if notice.class == DUPLICATE_AGENT => format!("linesman cluster show {one}"),
        ([one], _) => format!("linesman doctor --cluster {one}"),
        _ => "linesman cluster list".to_owned(),
    }
}

/// The three characters that Slack reads as markup; words of a cluster must not mention anyone.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(state: State, clusters: &[&str], text: &str) -> Letter {
        Letter {
            id: "0197".to_owned(),
            at: "2026-01-01T00:00:00Z".to_owned(),
            hub_id: "h1".to_owned(),
            hub_url: "https://hub.example".to_owned(),
            notice: Notice {
                state,
                severity: Severity::Critical,
                class: "AgentLost".to_owned(),
                clusters: clusters.iter().map(|n| n.parse().unwrap()).collect(),
                clusters_total: clusters.len(),
                text: text.to_owned(),
                since: "2025-12-31T23:59:00Z".to_owned(),
                next: None,
            },
        }
    }

    #[test]
    fn the_body_says_who_what_and_what_next() {
        assert_eq!(
            body(&letter(
                State::Open,
                &["eu1"],
                "the cluster is out of reach"
            )),
            json!({
                "version": 1, "id": "0197", "at": "2026-01-01T00:00:00Z",
                "hub": {"id": "h1", "url": "https://hub.example"},
                "state": "open", "severity": "critical", "class": "AgentLost", "clusters": ["eu1"],
                "clustersTotal": 1, "text": "the cluster is out of reach", "since": "2025-12-31T23:59:00Z",
                "next": "linesman doctor --cluster eu1",
            })
        );
    }

    /// As of a token that is for all clusters.
    #[test]
    fn a_notice_may_be_of_no_cluster_and_say_by_itself_what_to_do() {
        let mut notice = letter(State::Open, &[], "a token ends");
        notice.notice.next = Some("linesman token list --all".to_owned());
        let body = body(&notice);
        assert_eq!(
            (&body["clusters"], &body["next"]),
            (&json!([]), &json!("linesman token list --all"))
        );
        assert_eq!(
            slack(&notice)["text"],
            json!(
                ":red_circle: *the hub* *AgentLost* (since 2025-12-31T23:59:00Z)\na token ends\n\
                 `linesman token list --all`"
            )
        );
    }

    /// RFC 4231 gives HMAC-SHA256; what is signed is written down in `docs/operating.md`.
    #[test]
    fn a_receiver_can_check_the_signature_with_the_shared_secret() {
        let secret = Secret::new("topsecret".to_owned());
        let signed = signature(&secret, 1_767_225_600, "{}");
        let expected = "a0b1c87c821435b1738afa78322872aeccda4f291ce93830ae22770de2f07b7a";
        assert_eq!(signed, format!("v1;t=1767225600;sig={expected}"));
        assert_ne!(signature(&secret, 1_767_225_601, "{}"), signed);
        assert_ne!(signature(&secret, 1_767_225_600, "{} "), signed);
    }

    #[test]
    fn slack_gets_a_text_in_which_a_clusters_words_are_no_markup() {
        let one = slack(&letter(State::Reminder, &["eu1"], "<!channel> & co"));
        assert_eq!(
            one["text"],
            json!(
                ":red_circle: *eu1* still *AgentLost* (since 2025-12-31T23:59:00Z)\n&lt;!channel&gt; &amp; co\n\
                 `linesman doctor --cluster eu1`"
            )
        );
        let names: Vec<String> = (0..12).map(|n| format!("c{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let many = slack(&letter(State::Resolved, &names, "back"));
        let text = many["text"].as_str().unwrap();
        assert!(
            text.starts_with(
                ":white_check_mark: *c0, c1, c2, c3, c4, c5, c6, c7, c8, c9 and 2 more* is over:"
            ),
            "{text}"
        );
    }
}
