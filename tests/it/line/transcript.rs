//! What two ends of one build say to each other, kept for each release: builds that follow understand it.
//!
//! `transcripts/<version>.txt` is written by
//! `LINESMAN_UPDATE_GOLDEN=1 cargo test --test it line::transcript`; the file of the version in `Cargo.toml` is today's, those
//! of versions before it are not written again.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use linesman::keys;
use linesman::tunnel::handshake::{
    self, Agent, Challenge, HandshakeError, Hello, Limits, Welcome, check_hello, check_welcome,
};
use linesman::tunnel::session::{Config, Role};
use linesman::wire::frame::{self, Code, Frame, Refusal};

mod play;
mod script;
mod shake;
mod text;

use play::Live;
use script::{refusals, refuse, script};
use shake::{AGENT, HUB, covers, hub_key, identity, keyset, later, proven, shake, shaken};
use text::{End, Entry, Shaken};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const FOLDER: &str = "tests/it/line/transcripts";
const UPDATE: &str = "LINESMAN_UPDATE_GOLDEN";

fn head() -> String {
    format!(
        "\
# The line between an agent and a hub of linesman {VERSION}: messages, and what the ends were asked to do.
# The identity key's seed is 32 x 01, that of the hub's key 32 x 09. Each message takes a millisecond, waits are
# milliseconds. A message of the handshake is JSON and the signature; others are type, flags, length, stream and payload of
# their frames, in hex, where 61x1000 is a thousand times 61. Acts: `opens STREAM KIND CLASS META`, `writes STREAM TIMES
# TEXT`, `reads STREAM`, `finishes STREAM`, `stops STREAM CODE`, `resets STREAM CODE TEXT`, `drains CODE RETRY DRAIN TEXT`.
# Made by: {UPDATE}=1 cargo test --test it line::transcript
"
    )
}

/// What two ends of this build say.
fn today() -> Vec<Entry> {
    let [challenge, hello, welcome] = shake();
    let mut entries = vec![
        Entry::Shake(End::Hub, challenge),
        Entry::Shake(End::Agent, hello),
    ];
    entries.extend(refusals());
    entries.push(Entry::Shake(End::Hub, welcome));
    let now = Instant::now();
    let mut ends = [End::Hub, End::Agent].map(|end| Live::new(end, config(end, &entries), now));
    entries.extend(play::record(&mut ends, &script()));
    entries
}

/// A session of this build with an end that said so in its handshake.
fn config(end: End, entries: &[Entry]) -> Config {
    let ours = Limits::default();
    match end {
        End::Hub => ours.session(Role::Hub, said::<Hello>(entries, "HELLO").limits, 0.5),
        End::Agent => ours.session(Role::Agent, said::<Welcome>(entries, "WELCOME").limits, 0.5),
    }
}

fn message<'a>(entries: &'a [Entry], name: &str) -> &'a Shaken {
    let found = entries.iter().find_map(|entry| match entry {
        Entry::Shake(_, shaken) if shaken.name == name => Some(shaken),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no {name}"))
}

fn said<T: serde::de::DeserializeOwned>(entries: &[Entry], name: &str) -> T {
    serde_json::from_str(&message(entries, name).json).unwrap()
}

/// Lets a hub of this build answer the agent of a transcript.
fn play_hub(entries: &[Entry]) -> Result<(), String> {
    let challenge: Challenge = said(entries, "CHALLENGE");
    let nonce = keys::decode(&challenge.nonce).unwrap();
    let asked = handshake::challenge(&challenge.hub, nonce.try_into().unwrap(), challenge.time_ms);
    covers(message(entries, "CHALLENGE"), &shaken("CHALLENGE", &asked))?;

    let hello = message(entries, "HELLO");
    let told: Hello = said(entries, "HELLO");
    let asked = message(entries, "CHALLENGE").payload();
    let (key, hosts) = (identity().public(), [told.host.as_str()]);
    let read = check_hello(&asked, &hello.payload(), key, &told.hub, &hosts);
    if read.as_ref() != Ok(&told) {
        return Err(format!("HELLO: {read:?}"));
    }

    let recorded: Welcome = said(entries, "WELCOME");
    let welcome = handshake::welcome(&hello.payload(), &recorded, |bytes| hub_key().sign(bytes));
    let welcome = shaken("WELCOME", &welcome);
    covers(message(entries, "WELCOME"), &welcome)?;
    proven(HUB, &hello.payload(), &welcome, hub_key().public())?;

    for entry in entries {
        if let Entry::Refusal(code, retry_after_ms, text, message) = entry
            && refuse(*code, *retry_after_ms, text) != message
        {
            return Err(format!("REFUSE {code}"));
        }
    }
    let config = config(End::Hub, entries);
    play::play(Live::new(End::Hub, config, Instant::now()), entries)
}

/// Lets an agent of this build answer the hub of a transcript.
fn play_agent(entries: &[Entry]) -> Result<(), String> {
    let challenge = message(entries, "CHALLENGE").payload();
    let recorded: Hello = said(entries, "HELLO");
    let identity = identity();
    let agent = Agent {
        cluster: &recorded.cluster,
        identity: &identity,
        hub: &recorded.hub,
        host: &recorded.host,
        nonce: keys::decode(&recorded.nonce).unwrap().try_into().unwrap(),
        instance: &recorded.instance,
        resumes: recorded.resumes,
        cap: recorded.cap_ms.map(Duration::from_millis),
        build: &recorded.build,
        keyset: &keyset(&recorded.keyset),
    };
    let hello = handshake::hello(&challenge, &agent).map_err(|error| error.to_string())?;
    let hello = shaken("HELLO", &hello);
    covers(message(entries, "HELLO"), &hello)?;
    proven(AGENT, &challenge, &hello, identity.public())?;

    for entry in entries {
        if let Entry::Refusal(code, retry_after_ms, text, message) = entry {
            let refusal = Refusal {
                code: Code::from(*code),
                retry_after_ms: *retry_after_ms,
                text: text.clone(),
            };
            let read = frame::decode(&mut message.clone());
            if read != Ok(Some(Frame::Refuse(refusal))) {
                return Err(format!("REFUSE {code}: {read:?}"));
            }
        }
    }
    // The hub answered the recorded HELLO.
    let asked = message(entries, "HELLO").payload();
    let answer = message(entries, "WELCOME").payload();
    let read = check_welcome(&asked, &answer, agent.keyset, 0);
    let told: Result<Welcome, HandshakeError> = Ok(said(entries, "WELCOME"));
    if read != told {
        return Err(format!("WELCOME: {read:?}"));
    }
    let config = config(End::Agent, entries);
    play::play(Live::new(End::Agent, config, Instant::now()), entries)
}

/// The transcripts that are kept: today's, and those of releases before.
fn kept() -> Vec<(PathBuf, Vec<Entry>)> {
    let files = std::fs::read_dir(FOLDER).unwrap();
    let read = |path: PathBuf| {
        let entries = text::parse(&std::fs::read_to_string(&path).unwrap());
        (path, entries)
    };
    let kept: Vec<_> = files.map(|file| read(file.unwrap().path())).collect();
    assert!(!kept.is_empty(), "no transcript in {FOLDER}");
    kept
}

/// L18: a change of what goes over the line shows, as a change of the file of the version under way.
#[test]
fn the_transcript_of_this_version_is_todays() {
    let path = format!("{FOLDER}/{VERSION}.txt");
    let said = head() + &text::print(&today());
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &said).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == said,
        "transcripts/{VERSION}.txt is old. Where the change is meant, and builds before it understand it: \
         {UPDATE}=1 cargo test --test it line::transcript"
    );
    assert_eq!(text::parse(&kept), today());
}

/// L18: this hub with agents of every version that is kept.
#[test]
fn a_hub_answers_recorded_agents_as_it_did() {
    for (path, entries) in kept() {
        assert_eq!(play_hub(&entries), Ok(()), "{}", path.display());
    }
}

/// L18: this agent with hubs of every version that is kept.
#[test]
fn an_agent_answers_recorded_hubs_as_it_did() {
    for (path, entries) in kept() {
        assert_eq!(play_agent(&entries), Ok(()), "{}", path.display());
    }
}

/// L18: frames from 0x80 on, flags and fields of JSON that this build does not know change no answer.
#[test]
fn what_a_later_end_says_more_is_ignored() {
    let today = today();
    let (agents, hubs) = (later(End::Agent, &today), later(End::Hub, &today));
    assert!(message(&agents, "HELLO").json.contains("later"));
    assert!(message(&hubs, "WELCOME").json.contains("later"));
    assert_eq!(play_hub(&agents), Ok(()));
    assert_eq!(play_agent(&hubs), Ok(()));
}

/// What the comparison is worth: whatever an end does not say any more is missed.
#[test]
fn an_answer_that_is_gone_is_seen() {
    let today = today();
    let mut missed = 0;
    for (at, entry) in today.iter().enumerate() {
        let Entry::Message(by, message) = entry else {
            continue;
        };
        if text::frames(message)
            .iter()
            .all(|(kind, ..)| matches!(kind, 0x12 | 0x20))
        {
            continue;
        }
        let mut more = today.clone();
        // The recorded end said it twice.
        more.insert(at, entry.clone());
        let play = if *by == End::Hub {
            play_hub
        } else {
            play_agent
        };
        assert!(play(&more).is_err(), "{by:?}: {:?}", text::frames(message));
        missed += 1;
    }
    assert!(missed > 20, "{missed}");
}
