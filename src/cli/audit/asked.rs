//! Questions that the record has no answer to: whoever asks one is told so, for none looks like an answer.

use anyhow::Result;
use http::StatusCode;

use super::say;
use crate::cli::exit::Failure;
use crate::cli::moment;
use crate::client::{AuditFilter, Client};
use crate::hub::auth::Role;
use crate::wire::api::WhoAmI;

/// A span that ends before it begins.
pub(super) fn backwards(filter: &AuditFilter) -> Option<Failure> {
    moment::backwards(filter.since.as_deref(), filter.until.as_deref())
}

/// Says that there is no cluster of the name that is asked for. One that was removed has records all the same.
pub(super) async fn of_cluster(client: &Client, filter: &AuditFilter) {
    let Some(name) = &filter.cluster else {
        return;
    };
    if !client.whoami().await.is_ok_and(|me| sees_clusters(&me)) {
        return;
    }
    if let Err(error) = client.cluster(name).await
        && error.status() == Some(StatusCode::NOT_FOUND)
    {
        say(&format!(
            "warning: there is no cluster '{name}' now; of one that was removed there are records, of a wrong name only that it \
             was asked for"
        ));
        say(&format!("         {}", error.next()));
    }
}

/// Whoever may not look clusters up would be refused, on record.
fn sees_clusters(me: &WhoAmI) -> bool {
    let mut roles = me.roles.iter().filter_map(|role| Role::parse(role));
    roles.any(|role| role.holds(Role::Viewer))
}

/// Says that there is no record of this number yet: behind one that another hub gave nothing is let through for long.
pub(super) async fn behind(client: &Client, after: i64) -> Result<()> {
    if let Some(told) = beyond(after, end(client).await?) {
        say(&told);
    }
    Ok(())
}

fn beyond(after: i64, newest: i64) -> Option<String> {
    (newest < after).then(|| {
        format!(
            "warning: there is no record {after} yet, the newest is {newest}: see whether the number is of this hub"
        )
    })
}

/// The number of the last record.
pub(super) async fn end(client: &Client) -> Result<i64> {
    let newest = client.audit(&AuditFilter::default(), 1).await?;
    Ok(newest.first().map_or(0, |record| record.seq))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit::Code;

    #[test]
    fn a_span_that_ends_before_it_begins_is_refused() {
        let told = |since: Option<&str>, until: Option<&str>| {
            let [since, until] = [since, until].map(|time| time.map(str::to_owned));
            let filter = AuditFilter {
                since,
                until,
                ..AuditFilter::default()
            };
            backwards(&filter).map(|failure| (failure.code, failure.message))
        };
        let (seven, eight) = ("2027-01-15T07:00:00Z", "2027-01-15T08:00:00Z");
        let text = format!("--until ({seven}) lies before --since ({eight})");
        assert_eq!(told(Some(eight), Some(seven)), Some((Code::Usage, text)));
        for (since, until) in [
            (Some(seven), Some(eight)),
            (Some(seven), Some(seven)),
            // The same moment.
            (Some("2027-01-15T09:00:00+01:00"), Some(eight)),
            (None, Some(seven)),
            (Some(eight), None),
            (None, None),
        ] {
            assert_eq!(told(since, until), None, "{since:?} {until:?}");
        }
    }

    #[test]
    fn a_number_beyond_the_last_record_is_told() {
        let text = "warning: there is no record 99 yet, the newest is 22: see whether the number is of this hub";
        assert_eq!(beyond(99, 22).as_deref(), Some(text));
        assert_eq!(
            [22, 21, 0].map(|after| beyond(after, 22)),
            [None, None, None]
        );
    }
}
