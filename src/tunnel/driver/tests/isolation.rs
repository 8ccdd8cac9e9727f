//! What one stream, or ten thousand of them, cannot do to the others.

use super::*;

/// Opens a stream, whichever end asks, and gives both handles: the asking end's first.
async fn pair_of(pair: &mut Pair, by_agent: bool) -> (Stream, Stream) {
    let line = if by_agent { &pair.agent } else { &pair.hub };
    let ours = line.open(Kind::Api, Class::Normal, Bytes::new());
    let ours = ours.await.unwrap();
    let arrived = if by_agent {
        pair.from_agent.recv().await
    } else {
        pair.incoming.recv().await
    };
    (ours, arrived.unwrap().stream)
}

async fn echo(stream: Stream) {
    let (mut read, mut write) = split(stream);
    if tokio::io::copy(&mut read, &mut write).await.is_ok() {
        drop(write.shutdown().await);
    }
}

/// Echoes what arrives at one end until the line ends.
async fn echoes(mut incoming: mpsc::Receiver<Incoming>) {
    let mut streams = JoinSet::new();
    while let Some(arrived) = incoming.recv().await {
        streams.spawn(echo(arrived.stream));
    }
}

/// L20, L30: both ends open 10,000 streams each over a path of 200 ms. Every one of them works: no id is used twice, none
/// is closed that nobody closed, and at the end none is left.
#[tokio::test(start_paused = true)]
async fn ten_thousand_streams_from_either_end_collide_nowhere() {
    const EACH: usize = 10_000;
    let half = Duration::from_millis(100);
    let mut pair = Pair::new(|one, other| long(one, other, 125_000_000, half));
    for incoming in pair.split() {
        pair.tasks.spawn(echoes(incoming));
    }
    let (hub, agent) = (pair.hub.clone(), pair.agent.clone());
    let mut open = Vec::new();
    // A thousand at a time: what arrives faster than it is taken is refused beyond a bound.
    for step in 0..EACH / 1_000 {
        for line in [&hub, &agent] {
            for n in 0..1_000 {
                let stream = line.open(Kind::Api, Class::Normal, Bytes::new());
                let mut stream = stream.await.unwrap();
                let text = format!("{step} {n}");
                stream.write_all(text.as_bytes()).await.unwrap();
                open.push((stream, text));
            }
        }
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(open.len(), 2 * EACH);
    let mut wrong = Vec::new();
    for (stream, text) in &mut open {
        stream.shutdown().await.unwrap();
        let mut back = String::new();
        let read = timeout(Duration::from_secs(10), stream.read_to_string(&mut back)).await;
        if !matches!(read, Ok(Ok(_))) || back != *text {
            wrong.push(format!("{text}: {back:?} {read:?}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    drop(open);
    sleep(Duration::from_secs(2)).await;
    for line in [&hub, &agent] {
        let facts = line.facts();
        assert_eq!((facts.live, facts.opened), (0, 20_000), "{line:?}");
        assert!(line.takes_streams());
    }
}

/// L24: 50 streams whose reader stopped and 50 whose reader takes 16 bytes at a time, all of them fed with tiny writes for
/// ten minutes: the line holds, and an echo passes.
#[tokio::test(start_paused = true)]
async fn tiny_frames_for_slow_readers_end_nothing() {
    let half = Duration::from_millis(5);
    let mut pair = Pair::new(|one, other| long(one, other, 25_000_000, half));
    let mut kept = Vec::new();
    for n in 0..100 {
        let (mut ours, theirs) = pair_of(&mut pair, false).await;
        if n % 2 == 0 {
            kept.push(theirs);
        } else {
            pair.tasks.spawn(async move {
                let (mut theirs, mut bytes) = (theirs, [0; 16]);
                while theirs.read_exact(&mut bytes).await.is_ok() {}
            });
        }
        pair.tasks.spawn(async move {
            while ours.write_all(&[7; 16]).await.is_ok() {
                sleep(Duration::from_millis(100)).await;
            }
        });
    }
    let (mut ours, theirs) = pair_of(&mut pair, false).await;
    pair.tasks.spawn(echo(theirs));
    let (start, mut slowest) = (Instant::now(), Duration::ZERO);
    while start.elapsed() < Duration::from_mins(10) {
        sleep(Duration::from_secs(1)).await;
        let sent = Instant::now();
        ours.write_all(&[1; 64]).await.unwrap();
        ours.read_exact(&mut [0; 64]).await.unwrap();
        slowest = slowest.max(sent.elapsed());
    }
    assert!(pair.hub.takes_streams() && pair.agent.takes_streams());
    assert!(slowest < Duration::from_millis(50), "{slowest:?}");
}

/// L22: 32 and 200 readers leave in the middle of what they read. The upload that comes next starts at once.
#[tokio::test(start_paused = true)]
async fn readers_that_leave_hold_up_no_upload() {
    for readers in [32, 200] {
        an_upload_after(readers).await;
    }
}

async fn an_upload_after(leaving: usize) {
    let half = Duration::from_millis(5);
    let mut pair = Pair::new(|one, other| long(one, other, 25_000_000, half));
    let mut readers = Vec::new();
    for _ in 0..leaving {
        let (ours, mut theirs) = pair_of(&mut pair, false).await;
        pair.tasks.spawn(async move {
            let chunk = vec![5; 16 << 10];
            while theirs.write_all(&chunk).await.is_ok() {}
        });
        readers.push(ours);
    }
    for reader in &mut readers {
        reader.read_exact(&mut [0; 1024]).await.unwrap();
    }
    drop(readers);
    let (mut ours, mut theirs) = pair_of(&mut pair, false).await;
    let began = Instant::now();
    let upload = async {
        ours.write_all(&vec![9; 1 << 20]).await.unwrap();
        ours.shutdown().await.unwrap();
    };
    let taken = async {
        theirs.read_exact(&mut [0; 1]).await.unwrap();
        let first = began.elapsed();
        let mut rest = Vec::new();
        theirs.read_to_end(&mut rest).await.unwrap();
        (first, rest.len())
    };
    let ((), (first, rest)) = tokio::join!(upload, taken);
    assert_eq!(rest, (1 << 20) - 1);
    assert!(first <= Duration::from_millis(100), "{leaving}: {first:?}");
    drop((ours, theirs));
    sleep(Duration::from_secs(2)).await;
    assert_eq!((pair.hub.facts().live, pair.agent.facts().live), (0, 0));
}

/// Echoes of 64 bytes on each of the streams at the same time, again and again: the streams, and the slowest hundredth's time.
async fn echo_p99(streams: Vec<Stream>) -> (Vec<Stream>, Duration) {
    const ROUNDS: usize = 100;
    let mut tasks = JoinSet::new();
    for mut stream in streams {
        tasks.spawn(async move {
            let mut times = Vec::new();
            for _ in 0..ROUNDS {
                let sent = Instant::now();
                stream.write_all(&[1; 64]).await.unwrap();
                stream.read_exact(&mut [0; 64]).await.unwrap();
                times.push(sent.elapsed());
            }
            (stream, times)
        });
    }
    let (streams, times): (Vec<_>, Vec<_>) = tasks.join_all().await.into_iter().unzip();
    let mut times: Vec<Duration> = times.into_iter().flatten().collect();
    times.sort_unstable();
    (streams, times[times.len() * 99 / 100])
}

/// L22: a reader stops early in 1 GB. The echoes of others take no longer for it, and what it says itself arrives at once.
#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_holds_up_nobody() {
    let half = Duration::from_millis(5);
    let mut pair = Pair::new(|one, other| long(one, other, 25_000_000, half));
    let mut others = Vec::new();
    for _ in 0..20 {
        let (ours, theirs) = pair_of(&mut pair, false).await;
        pair.tasks.spawn(echo(theirs));
        others.push(ours);
    }
    let (others, before) = echo_p99(others).await;
    let (mut reader, theirs) = pair_of(&mut pair, false).await;
    let (mut hears, mut sends) = split(theirs);
    let (sent, mut passed) = watch::channel(0);
    pair.tasks.spawn(async move {
        let chunk = vec![5; 16 << 10];
        while *sent.borrow() < 1 << 30 && sends.write_all(&chunk).await.is_ok() {
            sent.send_modify(|bytes| *bytes += chunk.len());
        }
    });
    reader.read_exact(&mut vec![0; 1 << 20]).await.unwrap();
    // Until its window is full, and nothing of it moves.
    while let Ok(changed) = timeout(Duration::from_secs(1), passed.changed()).await {
        changed.unwrap();
    }
    let (_others, after) = echo_p99(others).await;
    let mut slowest = Duration::ZERO;
    for n in 0..100 {
        let said = Instant::now();
        reader.write_all(&[n]).await.unwrap();
        assert_eq!(hears.read_u8().await.unwrap(), n);
        slowest = slowest.max(said.elapsed());
    }
    println!(
        "figure | L22 | a reader that stopped: others' p99 before / after, its own reverse direction | < 2 x, ≤ 100 ms | {before:.1?} / {after:.1?}, {slowest:.1?}"
    );
    assert!(after < before * 2, "{before:?}, then {after:?}");
    assert!(slowest <= Duration::from_millis(100), "{slowest:?}");
    let sent = *passed.borrow();
    assert!(sent < 1 << 30, "all of it went: {sent} bytes");
    // It reads on, and has the rest.
    let mut more = vec![0; 32 << 20];
    reader.read_exact(&mut more).await.unwrap();
    assert!(more.iter().all(|byte| *byte == 5));
}

/// L21: windows of as many streams as read at once grow into the line's memory together: readers that all stand still for a
/// moment, as on a busy machine, lose none of them.
#[tokio::test(start_paused = true)]
async fn readers_that_pause_together_lose_no_stream() {
    const GROWS: usize = 16 << 20;
    let half = Duration::from_millis(5);
    let mut pair = Pair::new(|one, other| long(one, other, 4_000_000_000, half));
    let mut reading = JoinSet::new();
    for _ in 0..16 {
        let (mut ours, mut theirs) = pair_of(&mut pair, false).await;
        pair.tasks.spawn(async move {
            let chunk = vec![5; 16 << 10];
            while theirs.write_all(&chunk).await.is_ok() {}
        });
        reading.spawn(async move {
            let mut chunk = vec![0; 256 << 10];
            for _ in 0..GROWS / chunk.len() {
                ours.read_exact(&mut chunk).await.unwrap();
            }
            ours
        });
    }
    let mut readers = reading.join_all().await;
    // Less than what counts as unread for long, and more than it takes to fill each window.
    sleep(Duration::from_secs(2)).await;
    let unread = pair.hub.load().unread;
    let mut bytes = vec![0; GROWS];
    for (n, reader) in readers.iter_mut().enumerate() {
        let read = reader.read_exact(&mut bytes).await;
        assert!(read.is_ok(), "stream {n} of {unread} bytes: {read:?}");
    }
    assert!(unread > 8 << 20, "windows did not grow: {unread} bytes");
}

/// L8, L29: 100,000 streams that are given up at once, by either end or by both, leave nothing behind.
#[tokio::test(start_paused = true)]
async fn aborted_streams_leave_nothing_behind() {
    let half = Duration::from_millis(5);
    let mut pair = Pair::new(|one, other| long(one, other, 125_000_000, half));
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    for round in 0..10_000 {
        let mut open = Vec::new();
        for n in 0..10 {
            let (mut ours, mut theirs) = pair_of(&mut pair, round % 2 == 0).await;
            if n % 3 != 0 {
                ours.write_all(&[1; 100]).await.unwrap();
            }
            if n % 4 == 0 {
                theirs.write_all(&[2; 100]).await.unwrap();
            }
            open.push((ours, theirs));
        }
        for (n, (ours, theirs)) in open.into_iter().enumerate() {
            match n % 3 {
                0 => drop((ours, theirs)),
                1 => drop((theirs, ours)),
                _ => theirs.reset(Code::Internal, "given up"),
            }
        }
    }
    // As long as the end of a stream may take that was only stopped.
    sleep(Duration::from_secs(31)).await;
    assert_eq!(tasks(), before, "tasks");
    for line in [&pair.hub, &pair.agent] {
        let facts = line.facts();
        assert_eq!((facts.live, facts.opened), (0, 100_000), "{line:?}");
        assert_eq!(line.load().api, 0);
        assert!(line.takes_streams());
    }
}
