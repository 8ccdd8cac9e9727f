use super::*;

#[test]
fn what_was_kept_is_a_record_or_an_anchor() {
    let hash = keys::hex(&[7; 32]);
    let head = Some(Head {
        seq: 9,
        hash: [7; 32],
    });
    let error = |why: &str| Err(why.to_owned());
    let broken = error("a record or an anchor whose number or hash cannot be read");
    for (line, is) in [
        (format!(r#"{{"seq":9,"at":"x","hash":"{hash}"}}"#), Ok(head)),
        (
            format!(r#"{{"anchor":{{"seq":9,"hash":"{hash}","at":1,"sig":"","start":false}}}}"#),
            Ok(head),
        ),
        (r#"{"gap":{"from":1,"to":2}}"#.to_owned(), Ok(None)),
        (r#"{"seq":9,"ha"#.to_owned(), Ok(None)),
        (String::new(), Ok(None)),
        (r#"{"seq":9,"hash":"07"}"#.to_owned(), broken.clone()),
        (format!(r#"{{"anchor":{{"hash":"{hash}"}}}}"#), broken),
        (
            format!(r#"{{"number":9,"hash":"{}"}}"#, &hash[..2]),
            error(r#"neither a record nor an anchor: '{"number":9,"hash":"07"}'"#),
        ),
        (
            "9 0707".to_owned(),
            error("neither a record nor an anchor: '9 0707'"),
        ),
        ("x".repeat((1 << 20) + 1), error("longer than 1 MiB")),
    ] {
        assert_eq!(parsed(line.as_bytes()), is, "{}", short(&line, 80));
    }
}

/// A nightly job tells by the exit code whether the audit was tampered with or its own file is wrong.
#[test]
fn a_file_that_keeps_nothing_of_the_audit_is_wrong_usage_and_its_line_is_named() {
    let name = format!("linesman-verify-kept-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let shown = path.display();
    let record = |seq: u8| format!(r#"{{"seq":{seq},"hash":"{}"}}"#, keys::hex(&[seq; 32]));
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        Kept::read(&path).map_err(|failure| (failure.code, failure.message))
    };
    let wrong = |text: String| Err((Code::Usage, text));
    let none = |found: &str| {
        wrong(format!(
            "{shown} holds neither a record nor an anchor: {found}"
        ))
    };
    assert_eq!(read(""), none("it is empty"));
    let bad = format!("line 3 of {shown} is neither a record nor an anchor: 'bad'");
    assert_eq!(read("\n\nbad\nworse\n"), wrong(bad));
    let gap = r#"{"gap":{"from":1,"to":2}}"#;
    assert_eq!(read(gap), none(&format!("line 1 is '{gap}'")));
    let cut = record(9).replace(r#""}"#, r#"0"}"#);
    let text = format!("{}\n{cut}\n", record(8));
    let unread =
        format!("line 2 of {shown} is a record or an anchor whose number or hash cannot be read");
    assert_eq!(read(&text), wrong(unread));
    // Where a hub died, half a line stays.
    let first = format!("{}\n{{\"seq\":9,\"ha\n", record(8));
    let stretch = |at: usize, before, last| Stretch {
        at: at as u64,
        before,
        last,
    };
    let kept = Kept {
        path: path.clone(),
        stretches: vec![stretch(0, 0, 1), stretch(first.len(), 2, 3)],
        lines: 2,
        newest: 8,
    };
    assert_eq!(read(&format!("{first}{}\n", record(7))), Ok(kept));
    // From the highest number down.
    let down = (0..=128).rev().map(|seq| record(seq) + "\n");
    let back =
        format!("line 129 of {shown} goes back to record 0: numbers go down there 128 times");
    assert_eq!(read(&down.collect::<String>()), wrong(back));
    std::fs::remove_file(&path).unwrap();
    let gone = Kept::read(&path).unwrap_err();
    assert_eq!(gone.code, Code::Usage, "{gone:?}");
    assert!(gone.message.starts_with("read "), "{gone:?}");
}
