//! Logging in with a browser on another machine (RFC 8628).

use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep};

use crate::cli::exit::{Code, Failure};
use crate::cli::output::progress_line;
use crate::client::Client;
use crate::wire::api::{DeviceLogin, SessionAnswer, TokenRequest};

/// What each "slow down" adds, and a hub that is away (RFC 8628 §3.5).
const SLOWER: Duration = Duration::from_secs(5);
/// The longest that anyone waits between two questions.
const MOST: Duration = Duration::from_mins(1);

pub(super) async fn log_in(client: &Client) -> Result<SessionAnswer> {
    let device = client.device_login().await?;
    tell(&device);
    let until = Instant::now() + Duration::from_secs(u64::from(device.expires_in));
    let asked = TokenRequest::Device {
        device_code: device.device_code,
    };
    let mut interval = Duration::from_secs(u64::from(device.interval.max(1)));
    loop {
        if Instant::now() + interval > until {
            return Err(over().into());
        }
        sleep(interval).await;
        match client
            .session_token("ask whether you logged in", &asked)
            .await
        {
            Ok(answer) => return Ok(answer),
            Err(error) => match error.slug() {
                Some("authorization-pending") => {}
                Some("expired-token") => return Err(over().into()),
                Some("slow-down") => interval = (interval + SLOWER).min(MOST),
                _ if error.is_passing() => interval = (interval + SLOWER).min(MOST),
                Some("access-denied") => {
                    let next = "run it again; a hub admin finds more in: linesman audit list";
                    return Err(Failure::new(Code::Denied, error.to_string(), next).into());
                }
                _ => return Err(error.into()),
            },
        }
    }
}

fn tell(device: &DeviceLogin) {
    progress_line(&format!(
        "open {} in any browser and type the code\n\n  {}\n\nor open {}\nwaiting for {} minutes; Ctrl-C ends it",
        device.verification_uri,
        device.user_code,
        device.verification_uri_complete,
        device.expires_in / 60
    ));
}

fn over() -> Failure {
    Failure::new(
        Code::Timeout,
        "nobody typed the code in time",
        "run it again",
    )
}
