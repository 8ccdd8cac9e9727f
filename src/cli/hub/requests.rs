//! The hub's flags about how many Kubernetes requests run at once.

use crate::hub::proxy::limits::{LEAST, MOST_OF_CLUSTER, MOST_OF_USER, Requests};

/// How many requests may run at once.
#[derive(Debug, clap::Args)]
pub(super) struct RequestArgs {
    /// How many Kubernetes requests of one user run at once over all clusters, watches and sessions among them; 64 to
    /// 16384. More are refused (429). Each replica counts its own
    #[arg(
        long,
        env = "LINESMAN_MAX_REQUESTS_PER_USER",
        value_name = "N",
        default_value_t = Requests::default().user,
        value_parser = clap::value_parser!(u32).range(i64::from(LEAST)..=i64::from(MOST_OF_USER))
    )]
    max_requests_per_user: u32,
    /// How many of all users run at once on one cluster; 64 to 4096, of which an agent serves no more
    #[arg(
        long,
        env = "LINESMAN_MAX_REQUESTS_PER_CLUSTER",
        value_name = "N",
        default_value_t = Requests::default().cluster,
        value_parser = clap::value_parser!(u32).range(i64::from(LEAST)..=i64::from(MOST_OF_CLUSTER))
    )]
    max_requests_per_cluster: u32,
}

impl RequestArgs {
    pub(super) fn config(&self) -> Requests {
        Requests {
            user: self.max_requests_per_user,
            cluster: self.max_requests_per_cluster,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;
    use crate::cli::hub::tests::parsed;

    #[test]
    fn requests_at_once_are_what_the_flags_say() {
        assert_eq!(parsed(&[]).bounds.requests, Requests::default());
        let flags = [
            "--max-requests-per-user=10000",
            "--max-requests-per-cluster=2048",
        ];
        let said = Requests {
            user: 10_000,
            cluster: 2_048,
        };
        assert_eq!(parsed(&flags).bounds.requests, said);
    }

    #[test]
    fn requests_at_once_are_bounded_both_ways() {
        let hub = RequestArgs::augment_args(clap::Command::new("hub"));
        let takes = |flag: &str| hub.clone().try_get_matches_from(["hub", flag]).is_ok();
        for (flag, least, most) in [
            ("--max-requests-per-user", 64, 16_384),
            ("--max-requests-per-cluster", 64, 4_096),
        ] {
            let accepted =
                [least - 1, least, most, most + 1].map(|n| takes(&format!("{flag}={n}")));
            assert_eq!(accepted, [false, true, true, false], "{flag}");
        }
    }
}
