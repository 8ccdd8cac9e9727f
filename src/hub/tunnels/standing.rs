//! What is told of a cluster's line. A replica has seen the end of its own lines only, and one of long ago says nothing of what
//! came after it elsewhere. Pure.

use time::OffsetDateTime;

use super::LineView;

/// How a cluster's line stands, as far as this replica knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    Up,
    /// It is up, takes no more requests, and has no successor yet.
    Draining,
    /// The newest line that is known ended here.
    Ended {
        at: OffsetDateTime,
        cause: String,
    },
    /// The newest line was at another replica, where it is known why it ended.
    Elsewhere {
        /// When it was known last; None = it came and went unseen.
        line: Option<OffsetDateTime>,
        /// The last sign of life, that line's among them.
        heard: OffsetDateTime,
    },
    /// No line was seen since this hub began.
    Silent {
        heard: OffsetDateTime,
    },
    /// Nothing was ever heard of it.
    Never,
}

impl Standing {
    /// Since when there is no line, and why; nothing where that is not known, or where there is one.
    pub fn outage(&self) -> (Option<OffsetDateTime>, Option<&str>) {
        match self {
            Self::Ended { at, cause } => (Some(*at), Some(cause.as_str())),
            Self::Elsewhere { line, .. } => (*line, None),
            Self::Up | Self::Draining | Self::Silent { .. } | Self::Never => (None, None),
        }
    }
}

impl LineView {
    /// `counted` is the epoch up to which lines of the cluster were counted, of which other replicas may have had some; None = this
    /// is the only one. `heard` is the cluster's last sign of life by any way, as far as it is known.
    pub fn standing(&self, counted: Option<u64>, heard: Option<OffsetDateTime>) -> Standing {
        match &self.up {
            Some(facts) if facts.draining => return Standing::Draining,
            Some(_) => return Standing::Up,
            None => {}
        }
        let (known, seen) = self.elsewhere.unzip();
        let newest = known.max(counted).unwrap_or_default();
        if let (Some(at), Some(cause)) = (self.down_since, &self.last_cause)
            && newest <= self.ended
        {
            let cause = cause.clone();
            return Standing::Ended { at, cause };
        }
        let Some(heard) = heard.max(seen).max(self.down_since) else {
            return Standing::Never;
        };
        if known.is_none() && self.ended == 0 {
            return Standing::Silent { heard };
        }
        let line = seen.max(self.down_since).filter(|_| counted <= known);
        Standing::Elsewhere { line, heard }
    }

    /// Since when there is no line, and why the last one that is over ended, as far as that is known here. `counted` as in
    /// [`Self::standing`].
    pub fn last_end(&self, counted: Option<u64>) -> (Option<OffsetDateTime>, Option<String>) {
        let Some(up) = &self.up else {
            let standing = self.standing(counted, None);
            let (since, cause) = standing.outage();
            return (since, cause.map(str::to_owned));
        };
        let before = counted.map_or(0, |_| up.epoch.saturating_sub(1));
        let cause = self.last_cause.clone();
        (None, cause.filter(|_| before <= self.ended))
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;
    use crate::tunnel::LineFacts;

    const LONG_AGO: OffsetDateTime = datetime!(2026-01-01 00:00 UTC);
    const BEFORE: OffsetDateTime = datetime!(2026-01-04 12:00 UTC);
    const LATELY: OffsetDateTime = datetime!(2026-01-04 12:00:05 UTC);
    const CAUSE: &str = "LINE_LOST: no byte for 25 s";

    fn up(epoch: u64, draining: bool) -> LineFacts {
        LineFacts {
            epoch,
            session: String::new(),
            remote: String::new(),
            instance: String::new(),
            since: BEFORE,
            cap: None,
            rtt: None,
            live: 0,
            opened: 0,
            draining,
            sent: 0,
            received: 0,
        }
    }

    /// Line 5 ended here long ago.
    fn view(up: Option<LineFacts>, elsewhere: Option<(u64, OffsetDateTime)>) -> LineView {
        LineView {
            up,
            down_since: Some(LONG_AGO),
            known_down: Some(LONG_AGO),
            last_cause: Some(CAUSE.to_owned()),
            ended: 5,
            elsewhere,
        }
    }

    fn ended(at: OffsetDateTime) -> Standing {
        let cause = CAUSE.to_owned();
        Standing::Ended { at, cause }
    }

    fn elsewhere(line: Option<OffsetDateTime>, heard: OffsetDateTime) -> Standing {
        Standing::Elsewhere { line, heard }
    }

    /// What it is about, what is known of the line, up to which epoch lines were counted, when the cluster was heard, and what
    /// is told.
    type Row = (
        &'static str,
        LineView,
        Option<u64>,
        Option<OffsetDateTime>,
        Standing,
    );

    fn check(rows: impl IntoIterator<Item = Row>) {
        for (what, view, counted, heard, standing) in rows {
            assert_eq!(view.standing(counted, heard), standing, "{what}");
        }
    }

    /// L11: time and cause are those of the newest line, or the cause is left out.
    #[test]
    fn an_outage_is_told_of_the_line_that_ended_last() {
        let since = |elsewhere| view(None, elsewhere);
        check([
            ("it ended here", since(None), None, None, ended(LONG_AGO)),
            (
                "none was counted after it",
                since(None),
                Some(5),
                None,
                ended(LONG_AGO),
            ),
            (
                "its agent calls by HTTPS, and the line is down",
                since(None),
                Some(5),
                Some(LATELY),
                ended(LONG_AGO),
            ),
            (
                "the line before was at another replica",
                since(Some((4, BEFORE))),
                Some(5),
                Some(LATELY),
                ended(LONG_AGO),
            ),
            (
                "the line after it was at another replica",
                since(Some((6, BEFORE))),
                Some(6),
                None,
                elsewhere(Some(BEFORE), BEFORE),
            ),
            (
                "and the cluster was heard after that",
                since(Some((6, BEFORE))),
                Some(6),
                Some(LATELY),
                elsewhere(Some(BEFORE), LATELY),
            ),
            (
                "or not heard since long before",
                since(Some((6, BEFORE))),
                Some(6),
                Some(LONG_AGO),
                elsewhere(Some(BEFORE), BEFORE),
            ),
        ]);
    }

    /// L11, L19: nobody asked here for the cluster while another replica had its line.
    #[test]
    fn a_line_that_nobody_here_saw_is_known_by_its_epoch() {
        check([
            (
                "it came after the one that ended here",
                view(None, None),
                Some(6),
                Some(LATELY),
                elsewhere(None, LATELY),
            ),
            (
                "it came after another one that was seen",
                view(None, Some((6, BEFORE))),
                Some(7),
                Some(LATELY),
                elsewhere(None, LATELY),
            ),
            (
                "none was here, and the one there is not known of",
                LineView::default(),
                Some(6),
                Some(LATELY),
                Standing::Silent { heard: LATELY },
            ),
        ]);
    }

    #[test]
    fn without_an_end_that_was_seen_the_last_word_is_told() {
        let only = |elsewhere| LineView {
            elsewhere,
            ..LineView::default()
        };
        check([
            (
                "the line was at another replica only",
                only(Some((6, BEFORE))),
                Some(6),
                Some(LONG_AGO),
                elsewhere(Some(BEFORE), BEFORE),
            ),
            (
                "no line was seen since the hub began",
                only(None),
                None,
                Some(BEFORE),
                Standing::Silent { heard: BEFORE },
            ),
            (
                "it has not joined",
                only(None),
                Some(0),
                None,
                Standing::Never,
            ),
        ]);
    }

    /// L11: an outage of before is over.
    #[test]
    fn a_line_that_is_up_is_not_told_as_an_outage() {
        check([
            (
                "it drains",
                view(Some(up(6, true)), None),
                Some(6),
                Some(LATELY),
                Standing::Draining,
            ),
            (
                "it takes requests",
                view(Some(up(7, false)), Some((6, BEFORE))),
                Some(7),
                Some(LATELY),
                Standing::Up,
            ),
        ]);
    }

    #[test]
    fn since_and_why_there_is_no_line_are_told_where_they_are_known() {
        for (standing, outage) in [
            (ended(BEFORE), (Some(BEFORE), Some(CAUSE))),
            (elsewhere(Some(BEFORE), LATELY), (Some(BEFORE), None)),
            (elsewhere(None, LATELY), (None, None)),
            (Standing::Silent { heard: LATELY }, (None, None)),
            (Standing::Never, (None, None)),
            (Standing::Draining, (None, None)),
            (Standing::Up, (None, None)),
        ] {
            assert_eq!(standing.outage(), outage, "{standing:?}");
        }
    }

    /// L11, L19
    #[test]
    fn beside_a_line_that_is_up_the_end_of_the_one_before_is_told_where_it_was_here() {
        let cause = || Some(CAUSE.to_owned());
        let down = Some(LONG_AGO);
        for (what, view, counted, told) in [
            (
                "next",
                view(Some(up(6, false)), None),
                Some(6),
                (None, cause()),
            ),
            (
                "one between",
                view(Some(up(7, false)), None),
                Some(7),
                (None, None),
            ),
            (
                "a handshake between, and no other replica",
                view(Some(up(7, false)), None),
                None,
                (None, cause()),
            ),
            ("none is up", view(None, None), Some(5), (down, cause())),
            ("nor any more", view(None, None), Some(6), (None, None)),
        ] {
            assert_eq!(view.last_end(counted), told, "{what}");
        }
    }
}
