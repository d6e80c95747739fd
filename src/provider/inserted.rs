//! Words that contextd puts into a conversation where a service takes it in a certain order only:
//! the same for every protocol, so that a model finds nothing new after a switch.

/// What a user says before an assistant who speaks first.
pub(super) const OPENING: &str = "[The conversation begins.]";

/// What stands before instructions within the conversation, for a service that takes them from a
/// user only.
pub(super) const INSTRUCTIONS: &str = "[Instructions]\n";
