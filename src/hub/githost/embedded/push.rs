//! The commands at the head of a push: which references it wants to move. Pure; see gitprotocol-pack(5).

#![deny(clippy::indexing_slicing, clippy::expect_used)]

/// More command bytes than this are not read ahead; such a push goes to Git unread and unreported.
pub(super) const MAX_HEAD: usize = 64 << 10;

/// One reference that a push wants to move. `None` = does not exist before, or not after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Update {
    pub(super) name: String,
    pub(super) old: Option<String>,
    pub(super) new: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Head {
    /// More bytes are needed.
    Incomplete,
    Complete(Vec<Update>),
    /// Not what Git sends; Git itself will say so.
    Unreadable,
}

/// Reads the commands from the first bytes of a push.
pub(super) fn head(bytes: &[u8]) -> Head {
    let mut rest = bytes;
    let mut updates = Vec::new();
    loop {
        let Some((length, after)) = rest.split_at_checked(4) else {
            return Head::Incomplete;
        };
        let Some(length) = std::str::from_utf8(length)
            .ok()
            .and_then(|text| usize::from_str_radix(text, 16).ok())
        else {
            return Head::Unreadable;
        };
        if length == 0 {
            return Head::Complete(updates);
        }
        let Some(length) = length.checked_sub(4) else {
            return Head::Unreadable;
        };
        let Some((line, after)) = after.split_at_checked(length) else {
            return Head::Incomplete;
        };
        rest = after;
        match command(line) {
            Ok(Some(update)) => updates.push(update),
            Ok(None) => {}
            Err(Unreadable) => return Head::Unreadable,
        }
    }
}

struct Unreadable;

/// `<old> <new> <name>`, capabilities behind NUL; `shallow <id>` lines are no command.
fn command(line: &[u8]) -> Result<Option<Update>, Unreadable> {
    let line = line.split(|b| *b == 0).next().unwrap_or_default();
    let text = std::str::from_utf8(line).map_err(|_| Unreadable)?;
    let text = text.trim_end_matches('\n');
    if text.starts_with("shallow ") {
        return Ok(None);
    }
    let (old, rest) = text.split_once(' ').ok_or(Unreadable)?;
    let (new, name) = rest.split_once(' ').ok_or(Unreadable)?;
    Ok(Some(Update {
        name: name.to_owned(),
        old: id(old)?,
        new: id(new)?,
    }))
}

/// All zeros mean "no such reference".
fn id(text: &str) -> Result<Option<String>, Unreadable> {
    let hex = |b: u8| b.is_ascii_digit() || matches!(b, b'a'..=b'f');
    if !matches!(text.len(), 40 | 64) || !text.bytes().all(hex) {
        return Err(Unreadable);
    }
    let none = text.bytes().all(|b| b == b'0');
    Ok((!none).then(|| text.to_owned()))
}

/// Words for what Git is going to refuse, one line each.
pub(super) fn objections(updates: &[Update], branch: &str) -> Vec<String> {
    let wanted = format!("refs/heads/{branch}");
    let mut lines = Vec::new();
    for update in updates {
        if update.name != wanted {
            let name: String = update
                .name
                .chars()
                .filter(|c| !c.is_control())
                .take(100)
                .collect();
            lines.push(format!(
                "linesman: the catalog has one branch, '{branch}'; {name} was refused"
            ));
        } else if update.new.is_none() {
            lines.push(format!(
                "linesman: branch '{branch}' is what the clusters follow; it cannot be deleted"
            ));
        }
    }
    lines.truncate(10);
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(text: &str) -> String {
        format!("{:04x}{text}", text.len() + 4)
    }

    fn update(name: &str, old: Option<&str>, new: Option<&str>) -> Update {
        Update {
            name: name.to_owned(),
            old: old.map(str::to_owned),
            new: new.map(str::to_owned),
        }
    }

    #[test]
    fn the_commands_of_a_push_are_read() {
        let (zero, one, two) = ("0".repeat(40), "1".repeat(40), "2".repeat(40));
        let text = [
            line(&format!("shallow {two}")),
            line(&format!(
                "{one} {two} refs/heads/main\0 report-status side-band-64k"
            )),
            line(&format!("{zero} {two} refs/tags/v1\n")),
            line(&format!("{one} {zero} refs/heads/old")),
            "0000PACK…".to_owned(),
        ]
        .concat();
        let expected = vec![
            update("refs/heads/main", Some(&one), Some(&two)),
            update("refs/tags/v1", None, Some(&two)),
            update("refs/heads/old", Some(&one), None),
        ];
        assert_eq!(head(text.as_bytes()), Head::Complete(expected));
        let (start, _) = text.split_at(60);
        assert_eq!(head(start.as_bytes()), Head::Incomplete);
        assert_eq!(head(b"0000"), Head::Complete(Vec::new()));
        assert_eq!(head(b"hello"), Head::Unreadable);
    }

    #[test]
    fn refused_references_are_explained() {
        let one = "1".repeat(40);
        let updates = [
            update("refs/heads/main", None, Some(&one)),
            update("refs/heads/feature\x1b", None, Some(&one)),
            update("refs/heads/main", Some(&one), None),
        ];
        assert_eq!(
            objections(&updates, "main"),
            [
                "linesman: the catalog has one branch, 'main'; refs/heads/feature was refused",
                "linesman: branch 'main' is what the clusters follow; it cannot be deleted",
            ]
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            head(&bytes);
            let framed = [line(&String::from_utf8_lossy(&bytes)).as_bytes(), b"0000"].concat();
            head(&framed);
        }
    }
}
