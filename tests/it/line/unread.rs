//! L23: streams that nobody reads.

use std::time::Duration;

use bytes::Bytes;
use linesman::keys::sha256;
use linesman::tunnel::budget::Budget;
use linesman::tunnel::credit::INITIAL_WINDOW;
use linesman::tunnel::driver::Socket;
use linesman::tunnel::session::{Config, Role};
use linesman::tunnel::{Incoming, Line};
use linesman::wire::frame::{Class, Code, Kind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use super::later::running_as;
use super::world::{PATIENCE, World};
use super::{echo, open, pattern, round_trip};

/// L23: 100 streams that nobody reads hold no more than the windows of 100 streams, which is what they were promised; none of
/// them is reset, and whoever reads one later gets all of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_streams_hold_up_no_other() {
    let world = World::new().await;
    let mut agent = world.agent();
    let held = agent.up().await;
    let line = world.line(1).await;
    let (mut unread, mut senders) = (Vec::new(), JoinSet::new());
    for n in 0..100 {
        // More than any window: what the peer does not read is not taken.
        let (read, mut write) = tokio::io::split(open(&line).await);
        senders.spawn(async move {
            write.write_all(&pattern(256 << 10, n)).await.unwrap();
            write.shutdown().await.unwrap();
        });
        unread.push((n, read, agent.incoming.recv().await.unwrap()));
    }
    let _echo = echo(agent.incoming);
    // No window grows that nobody reads from.
    let most = 100 * usize::try_from(INITIAL_WINDOW).unwrap();
    let mut looks = interval(Duration::from_millis(50));
    let full = async {
        while held.load().unread < most {
            looks.tick().await;
        }
    };
    timeout(PATIENCE, full)
        .await
        .expect("each window is filled");
    let data = pattern(1 << 20, 1);
    let back = timeout(PATIENCE, round_trip(open(&line).await, data.clone()))
        .await
        .expect("the others run");
    assert_eq!(sha256(&back), sha256(&data));
    // The reverse direction of an unread stream is free, too.
    let (n, mut ours, mut theirs) = unread.pop().unwrap();
    theirs.stream.write_all(b"hello").await.unwrap();
    let mut hello = [0; 5];
    timeout(PATIENCE, ours.read_exact(&mut hello))
        .await
        .expect("the reverse direction runs")
        .unwrap();
    assert_eq!(&hello, b"hello");
    assert!(held.load().unread <= 32 << 20, "{}", held.load().unread);
    unread.push((n, ours, theirs));
    for (n, _ours, mut theirs) in unread {
        let mut all = Vec::new();
        let read = theirs.stream.read_to_end(&mut all);
        let read = timeout(PATIENCE, read).await.expect("the rest comes");
        read.expect("it was not reset");
        assert!(all == pattern(256 << 10, n), "stream {n}");
    }
    assert_eq!(senders.join_all().await.len(), 100);
    world.end().await;
}

/// A line over a pipe, whose hub counts in `memory`: the agent's end, and the hub's with what comes over it.
fn piped(memory: &Budget) -> ((Line, Line), mpsc::Receiver<Incoming>, [JoinSet<()>; 2]) {
    let (near, far) = tokio::io::duplex(256 << 10);
    let config = Config {
        process: memory.clone(),
        ..Config::new(Role::Hub)
    };
    let agent = Socket::new(near, Role::Agent, Bytes::new());
    let hub = Socket::new(far, Role::Hub, Bytes::new());
    let (agent, _, one) = running_as(agent, Config::new(Role::Agent));
    let (hub, incoming, other) = running_as(hub, config);
    ((agent, hub), incoming, [one, other])
}

/// L23: 10,000 streams on ten lines, of which every tenth is read; what the others leave unread is more than the process may
/// hold. It stays within that, and none is reset that is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_unread_streams_stay_within_the_memory_of_the_process() {
    const LINES: usize = 10;
    const EACH: usize = 1_000;
    const HALF: usize = 16 << 10;
    let memory = Budget::new(64 << 20);
    let (mut read, mut unread, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..LINES {
        let (ends, mut incoming, tasks) = piped(&memory);
        for n in 0..EACH / 10 {
            let ours = ends.0.open(Kind::Report, Class::Normal, Bytes::new());
            let mut ours = ours.await.unwrap();
            ours.write_all(&pattern(HALF, n)).await.unwrap();
            let theirs = timeout(PATIENCE, incoming.recv()).await.unwrap();
            let mut theirs = theirs.unwrap().stream;
            let mut first = vec![0; HALF];
            let begun = timeout(PATIENCE, theirs.read_exact(&mut first)).await;
            begun.expect("it comes").unwrap();
            assert!(first == pattern(HALF, n));
            read.push((n + 1, ours, theirs));
        }
        lines.push((ends, incoming, tasks));
    }
    let (mut most, mut refused) = (0, 0);
    for (ends, incoming, _) in &mut lines {
        for n in 0..EACH / 10 * 9 {
            let ours = ends.0.open(Kind::Report, Class::Normal, Bytes::new()).await;
            let mut ours = ours.unwrap();
            let sent = timeout(PATIENCE, ours.write_all(&pattern(HALF, n))).await;
            drop(sent.expect("what is queued goes"));
            // A line that is full takes no more.
            let next = tokio::select! {
                biased;
                next = incoming.recv() => next,
                _ = ours.read_u8() => None,
            };
            match next {
                Some(theirs) => unread.push((ours, theirs.stream)),
                None => refused += 1,
            }
            most = most.max(memory.used());
        }
    }
    // A tenth beyond is for the time until a line gives back, and then there is the message that was too many.
    let cap = memory.limit() / 10 * 11 + (256 << 10);
    assert!(most <= cap, "{most} bytes");
    assert_eq!(unread.len() + refused, LINES * EACH / 10 * 9);
    // Those that are read were never in the way.
    for (n, ours, theirs) in &mut read {
        ours.write_all(&pattern(HALF, *n)).await.unwrap();
        ours.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let whole = timeout(PATIENCE, theirs.read_to_end(&mut rest)).await;
        whole.expect("it ends").expect("it was not reset");
        assert!(rest == pattern(HALF, *n));
        most = most.max(memory.used());
    }
    assert!(most <= cap, "{most} bytes");
    // Of what nobody read, as much was given up as had to be.
    let mut reset = 0;
    for (_, theirs) in &mut unread {
        let mut first = vec![0; HALF];
        match timeout(PATIENCE, theirs.read_exact(&mut first))
            .await
            .unwrap()
        {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(super::code(&error), Some(Code::OverBudget), "{error}");
                reset += 1;
            }
        }
    }
    assert!(reset + refused > 0, "all of it had room");
}

/// As many as fill the agent's memory for the line four times over: they are what goes, and whoever comes then is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_streams_keep_nobody_out() {
    let world = World::new().await;
    let mut agent = world.agent();
    agent.up().await;
    let line = world.line(1).await;
    // The agent keeps what comes and reads none of it.
    let (stop, mut stopped) = oneshot::channel();
    let mut keeps = JoinSet::new();
    keeps.spawn(async move {
        let mut unread = Vec::new();
        loop {
            tokio::select! {
                biased;
                _ = &mut stopped => return (unread, agent),
                Some(theirs) = agent.incoming.recv() => unread.push(theirs),
            }
        }
    });
    let (mut unread, window) = (Vec::new(), vec![7; 64 << 10]);
    for _ in 0..1500 {
        let mut ours = open(&line).await;
        let sent = timeout(PATIENCE, ours.write_all(&window)).await;
        drop(sent.expect("what is queued goes"));
        unread.push(ours);
    }
    stop.send(()).unwrap();
    let (kept, agent) = keeps.join_next().await.unwrap().unwrap();
    assert!(kept.len() < unread.len(), "the agent took all");
    let _echo = echo(agent.incoming);
    let data = pattern(1 << 10, 1);
    let back = timeout(PATIENCE, served(&line, &data))
        .await
        .expect("room is made within 5 s");
    assert_eq!(back, data);
    world.end().await;
}

/// The echo of `data`, by as many streams as are refused before.
async fn served(line: &Line, data: &[u8]) -> Vec<u8> {
    let mut looks = interval(Duration::from_millis(50));
    loop {
        looks.tick().await;
        let mut stream = line
            .open(Kind::Api, Class::Normal, Bytes::from_static(b"{}"))
            .await
            .unwrap();
        let mut back = Vec::new();
        let done = async {
            stream.write_all(data).await?;
            stream.shutdown().await?;
            stream.read_to_end(&mut back).await
        };
        match done.await {
            Ok(_) => return back,
            Err(error) => assert_eq!(super::code(&error), Some(Code::OverBudget), "{error}"),
        }
    }
}
