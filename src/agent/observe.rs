//! Watches become one observed state on a watch channel.
