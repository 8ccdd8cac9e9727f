//! The hub's flags about the grants that people give.

use std::time::Duration;

use crate::cli::duration;
use crate::hub::access::GrantRules;

/// Nobody gets anything done with less.
const LEAST: Duration = Duration::from_mins(1);

/// What a grant has to have.
#[derive(Debug, clap::Args)]
pub(super) struct GrantArgs {
    /// The longest that a grant lasts; 1m at least. One that is longer or has no end is refused; those that are there stay.
    /// Without it, a grant may have no end
    #[arg(long, env = "LINESMAN_GRANT_MAX", value_name = "TIME", value_parser = longest)]
    grant_max: Option<Duration>,
    /// Whether a grant has to say why it is given: `required`, one without --reason is refused
    #[arg(
        long,
        env = "LINESMAN_GRANT_REASON",
        value_name = "WHICH",
        value_enum,
        default_value = "optional"
    )]
    grant_reason: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Reason {
    Optional,
    Required,
}

impl GrantArgs {
    pub(super) fn config(&self) -> GrantRules {
        GrantRules {
            longest: self.grant_max,
            reasoned: self.grant_reason == Reason::Required,
        }
    }
}

fn longest(text: &str) -> Result<Duration, String> {
    duration::at_least(text, LEAST, "nobody could use a grant")
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;
    use crate::cli::hub::tests::parsed;

    #[test]
    fn the_rules_of_grants_are_what_the_flags_say() {
        assert_eq!(parsed(&[]).grants, GrantRules::default());
        let flags = ["--grant-max=8h", "--grant-reason=required"];
        let said = GrantRules {
            longest: Some(Duration::from_hours(8)),
            reasoned: true,
        };
        assert_eq!(parsed(&flags).grants, said);
    }

    #[test]
    fn a_grant_can_be_used_and_its_reason_is_asked_for_or_not() {
        let hub = GrantArgs::augment_args(clap::Command::new("hub"));
        let takes = |flag: &str| hub.clone().try_get_matches_from(["hub", flag]).is_ok();
        let long = ["0", "59s", "1m", "400"].map(|text| takes(&format!("--grant-max={text}")));
        assert_eq!(long, [false, false, true, false]);
        let asked =
            ["optional", "required", "maybe"].map(|word| takes(&format!("--grant-reason={word}")));
        assert_eq!(asked, [true, true, false]);
    }
}
