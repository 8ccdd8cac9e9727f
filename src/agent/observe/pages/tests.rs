use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Mutex;

use bytes::Bytes;
use futures_util::stream;
use http::header::ACCEPT;
use serde_json::json;
use tokio::time::sleep;

use super::*;
use crate::agent::observe::api;
use crate::agent::plan::tests::install_of;
use crate::bundle::Kind;
use crate::wire::api::EngineKind;

/// An answer comes in pieces of so many bytes.
const PIECE: usize = 64 << 10;
const CALL: Duration = Duration::from_secs(20);

/// What was asked of a server, and what it could bring.
#[derive(Debug, Default)]
pub(in crate::agent::observe) struct Asked {
    /// Of each list.
    pub(in crate::agent::observe) limits: Vec<usize>,
    /// Bytes that were taken of each answer,
    taken: Vec<usize>,
    /// of each one that is under way,
    open: BTreeMap<usize, usize>,
    /// and the most that there were of these together.
    held: usize,
}

impl Asked {
    /// Whether no answer was read further than it may be.
    pub(in crate::agent::observe) fn is_within(&self) -> bool {
        self.taken.iter().all(|taken| *taken <= LIMIT + PIECE)
    }
}

/// One answer.
struct Answer {
    text: Bytes,
    number: usize,
    asked: Arc<Mutex<Asked>>,
}

impl Answer {
    fn begin(text: String, limit: usize, asked: Arc<Mutex<Asked>>) -> Self {
        let mut all = asked.lock().unwrap();
        let number = all.taken.len();
        all.limits.push(limit);
        all.taken.push(0);
        drop(all);
        Self {
            text: text.into(),
            number,
            asked,
        }
    }

    fn piece(&mut self) -> Option<Bytes> {
        let piece = self.text.split_to(PIECE.min(self.text.len()));
        let mut all = self.asked.lock().unwrap();
        all.taken[self.number] += piece.len();
        *all.open.entry(self.number).or_default() += piece.len();
        all.held = all.held.max(all.open.values().sum());
        (!piece.is_empty()).then_some(piece)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.asked.lock().unwrap().open.remove(&self.number);
    }
}

/// An API server with Applications of so many bytes, `app-0`, `app-1` and so on.
pub(in crate::agent::observe) fn serving(sizes: &[usize], asked: Arc<Mutex<Asked>>) -> Client {
    let sizes = sizes.to_vec();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let field = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let (_, value) = pairs.find(|(key, _)| *key == name)?;
            value.parse::<usize>().ok()
        };
        let (limit, from) = (field("limit").unwrap(), field("continue").unwrap_or(0));
        let accept = request.headers().get(ACCEPT);
        let bare = accept.is_some_and(|accept| accept.to_str().unwrap().contains("Metadata"));
        let end = sizes.len().min(from + limit);
        let item = |n: usize| {
            let pad = if bare { 0 } else { sizes[n] };
            json!({
                "metadata": {"name": format!("app-{n}"), "namespace": "argocd", "uid": format!("u{n}"), "resourceVersion": "5"},
                "pad": "x".repeat(pad),
            })
        };
        let items: Vec<serde_json::Value> = (from..end).map(item).collect();
        let next = if end < sizes.len() {
            end.to_string()
        } else {
            String::new()
        };
        let list = json!({
            "kind": "ApplicationList", "apiVersion": "argoproj.io/v1alpha1",
            "metadata": {"resourceVersion": "7", "continue": next}, "items": items,
        });
        let answer = Answer::begin(list.to_string(), limit, Arc::clone(&asked));
        let pieces = stream::unfold(answer, |mut answer| async move {
            // Others are read meanwhile.
            tokio::task::yield_now().await;
            let piece = answer.piece()?;
            Some((Ok::<_, Infallible>(piece), answer))
        });
        let answer = http::Response::new(axum::body::Body::from_stream(pieces));
        async { Ok::<_, Infallible>(answer) }
    });
    Client::new(service, "default")
}

/// Reads all pages: how many objects they have.
async fn read(view: &View, client: &Client) -> Result<usize, Unread> {
    let all = api(client, Kind::Application, "argocd");
    let mut pages = view.pages(&all, ListParams::default().limit(100), CALL);
    let mut seen = 0;
    while pages.next(|_| seen += 1).await? == Page::More {}
    Ok(seen)
}

fn view() -> View {
    View::new(&install_of(EngineKind::Argocd))
}

/// The rest of a list is not read by ones and fours for a few large objects at its beginning.
#[tokio::test(start_paused = true)]
async fn as_much_is_asked_for_as_comes_to_less_than_the_limit() {
    let asked = Arc::new(Mutex::new(Asked::default()));
    let mut sizes = vec![1_000_000; 9];
    sizes.extend([10; 99]);
    let client = serving(&sizes, Arc::clone(&asked));
    assert_eq!(read(&view(), &client).await.unwrap(), 108);
    let asked = asked.lock().unwrap();
    assert_eq!(asked.limits, [100, 20, 4, 4, 4, 16, 100]);
    assert!(asked.is_within(), "{:?}", asked.taken);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_too_large_alone_is_named() {
    let asked = Arc::new(Mutex::new(Asked::default()));
    let client = serving(&[LIMIT], Arc::clone(&asked));
    let unread = read(&view(), &client).await.unwrap_err();
    assert_eq!(unread.to_string(), "argocd/app-0 is larger than 8 MiB");
    let asked = asked.lock().unwrap();
    // The last one is for its metadata.
    assert_eq!(asked.limits, [100, 20, 4, 1, 1]);
    assert!(asked.is_within(), "{:?}", asked.taken);
}

/// Whatever is listed at once, as all kinds are at the start.
#[tokio::test(start_paused = true)]
async fn large_pages_are_read_one_after_the_other() {
    let asked = Arc::new(Mutex::new(Asked::default()));
    let client = serving(&[1_000_000; 7], Arc::clone(&asked));
    let view = view();
    let read = || read(&view, &client);
    let seen = tokio::join!(read(), read(), read());
    assert_eq!([seen.0, seen.1, seen.2].map(Result::unwrap), [7; 3]);
    let asked = asked.lock().unwrap();
    assert_eq!(asked.limits, [100; 3]);
    let most = LIMIT + 2 * (SMALL + PIECE);
    assert!(asked.held <= most, "{} of {most}", asked.held);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_waits_for_its_turn_is_not_late() {
    let asked = Arc::new(Mutex::new(Asked::default()));
    let client = serving(&[100_000; 7], Arc::clone(&asked));
    let view = view();
    let turn = Arc::clone(&view.1).acquire_owned().await.unwrap();
    let given_back = async move {
        sleep(CALL * 2).await;
        drop(turn);
    };
    let (seen, ()) = tokio::join!(read(&view, &client), given_back);
    assert_eq!(seen.unwrap(), 7);
    assert_eq!(asked.lock().unwrap().limits, [100]);
}

/// What the text of a list says: names, and what comes next.
fn parsed(text: &str) -> serde_json::Result<(Vec<Option<String>>, Option<String>)> {
    let mut names = Vec::new();
    let meta = parse(text.as_bytes(), &mut |live: DynamicObject| {
        names.push(live.metadata.name);
    })?;
    Ok((names, meta.continue_))
}

#[test]
fn only_a_whole_list_tells_what_there_is() {
    let list = r#"{"items": [{"metadata": {"name": "a"}, "spec": {}}], "x": [1], "metadata": {"continue": "2"}}"#;
    let one = (vec![Some("a".to_owned())], Some("2".to_owned()));
    assert_eq!(parsed(list).unwrap(), one);
    for none in [r#"{"metadata": {}, "items": []}"#, r#"{"items": null}"#] {
        assert_eq!(parsed(none).unwrap(), (vec![], None), "{none}");
    }
    for other in [
        "",
        "[]",
        r#"{"metadata": {}}"#,
        r#"{"items": []"#,
        r#"{"items": []}x"#,
    ] {
        assert!(parsed(other).is_err(), "{other}");
    }
}

#[test]
fn what_is_said_in_place_of_a_list_is_kept_with_its_code() {
    let gone = br#"{"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}"#;
    let told = |code: StatusCode, text: &[u8]| {
        let status = refusal(code, text);
        (status.code, status.message)
    };
    assert_eq!(told(StatusCode::GONE, gone), (410, "too old".to_owned()));
    let proxy = told(StatusCode::BAD_GATEWAY, b"no upstream\n");
    assert_eq!(proxy, (502, "no upstream".to_owned()));
}
