//! The short-lived signed word of the hub on who sends a request.
