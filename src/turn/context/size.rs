//! The size of the next prompt: supplies the calculation in `context/size.rs` with counters,
//! configuration and model.

use std::{borrow::Cow, collections::BTreeMap};

use crate::{
    context::{
        estimator::Estimator,
        media::unsupported_tokens,
        prune,
        size::{ContextSize, Counters},
    },
    model::{
        Category, InputMessage, Message, ModelResponse, Part, PartSize, Role, Seq, SessionKey, Tool,
        ledger::ModelDependent, transcript::calling_turns,
    },
    provider::registry::ResolvedModel,
    session::{change::Answer, rows::NewMessage},
    store::{
        import::Tail, message::PlacedMessage, owned::OwnedTurn, session::Session, session_memory::PrepareInput,
        stats::Stats,
    },
    turn::{
        Error,
        context::{estimators::estimator, measured::counted, media::cannot_read, reasoning},
        engine::Prompts,
    },
};

/// Greater than the seq of any message.
pub(in crate::turn) const LATEST: Seq = Seq(i64::MAX);
/// Messages read by one query, and in total, to find the response of the last measured call.
const NEWEST: u32 = 64;
const MAX_NEWEST_MESSAGES: usize = 512;
/// Tokens of messages that are read in addition to twice the new tokens.
pub(in crate::turn) const SLACK: i64 = 4_096;

/// A model by its reference. A model that is not configured is assumed to support tools and to be
/// sent everything.
#[derive(Debug, Clone, Copy)]
pub(in crate::turn) struct CalledModel<'a> {
    pub(in crate::turn) reference: &'a str,
    pub(in crate::turn) resolved: Option<&'a ResolvedModel>,
}

impl<'a> CalledModel<'a> {
    /// A model that a host or a configuration names.
    pub(in crate::turn) fn named(reference: &'a str, resolved: Option<&'a ResolvedModel>) -> Self {
        Self { reference: resolved.map_or(reference, |model| &model.reference), resolved }
    }

    /// Whether some reasoning or some items of the transcript are not sent to the model.
    pub(in crate::turn) fn withholds_parts(self) -> bool {
        self.resolved.is_some_and(|model| model.provider.withholds_parts())
    }

    /// Tokens that a response costs in later prompts in addition to its parts.
    pub(in crate::turn) fn frame_tokens(self) -> u32 {
        self.resolved.map_or(0, |model| estimator(model).frame())
    }
}

impl<'a> From<&'a ResolvedModel> for CalledModel<'a> {
    fn from(model: &'a ResolvedModel) -> Self {
        Self { reference: &model.reference, resolved: Some(model) }
    }
}

/// The counters of what the store reads: the fields with the tokens and with the version.
macro_rules! counters {
    ($($read:ident: $tokens:ident, $($version:ident).+;)+) => {
        $(impl<'a> From<&'a $read> for Counters<'a> {
            fn from(read: &'a $read) -> Self {
                let (transcript_tokens, context_version) = (read.$tokens, read.$($version).+);
                Self { transcript_tokens, context_version, anchor: read.anchor.as_ref() }
            }
        })+
    };
}

counters! {
    Session: context_tokens, context_version;
    PrepareInput: context_tokens, context_version;
    OwnedTurn: context_tokens, context_version;
    Stats: context_tokens, version.context;
    Tail: tokens, version.context;
}

/// The part of a transcript that is read to find what is not sent to a model.
#[derive(Debug, Default)]
pub(in crate::turn) struct Excerpt<'a> {
    pub(in crate::turn) messages: Cow<'a, [Message]>,
    /// Results of calls that are open together with others: not in a message yet.
    results: Vec<Part>,
    /// The messages are only the newest ones.
    is_end: bool,
}

impl<'a> Excerpt<'a> {
    /// The newest messages of the transcript.
    pub(in crate::turn) fn end(messages: &'a [Message]) -> Self {
        Self { is_end: true, ..Self::whole(messages) }
    }

    /// The whole transcript, or the parts that are not sent to every model.
    pub(in crate::turn) fn whole(messages: &'a [Message]) -> Self {
        Self { messages: Cow::Borrowed(messages), results: Vec::new(), is_end: false }
    }
}

/// A message of a prompt, stored or about to be.
#[derive(Debug)]
pub(in crate::turn) struct PromptMessage<'a> {
    role: Role,
    response: Option<&'a ModelResponse>,
    parts: Vec<(&'a Part, PartSize)>,
    overhead: u32,
}

impl<'a> PromptMessage<'a> {
    /// Results that close a batch, without those that are already stored.
    pub(in crate::turn) fn of_answers(answers: &'a [Answer], overhead: u32) -> Self {
        let counted =
            |answer: &'a Answer| (&answer.part, PartSize { tokens: answer.tokens, category: Category::ToolResults });
        Self { role: Role::Tool, response: None, parts: answers.iter().map(counted).collect(), overhead }
    }

    /// Results that the counters already include.
    fn of_results(results: &'a [Part]) -> Self {
        let counted = |part| (part, PartSize { tokens: 0, category: Category::ToolResults });
        Self { role: Role::Tool, response: None, parts: results.iter().map(counted).collect(), overhead: 0 }
    }

    /// A client's message with the user role.
    pub(in crate::turn) fn of_input(input: &'a InputMessage, estimator: Estimator) -> Self {
        let parts = input.parts.iter().map(|part| (part, counted(part, Role::User, estimator))).collect();
        Self { role: Role::User, response: None, parts, overhead: estimator.overhead(Role::User, &input.parts) }
    }

    /// Tokens of the message as sent to the model with the next prompt.
    pub(in crate::turn) fn sent_tokens(&self, model: &ResolvedModel) -> i64 {
        self.tokens() - self.unsupported(model, true, true).map(|(_, tokens)| i64::from(tokens)).sum::<i64>()
    }

    fn tokens(&self) -> i64 {
        i64::from(self.overhead) + self.parts.iter().map(|(_, size)| i64::from(size.tokens)).sum::<i64>()
    }

    /// Whether it contains a tool call.
    fn calls(&self) -> bool {
        self.parts.iter().any(|(part, _)| part.is_call())
    }

    /// Tokens of the parts that are not sent to the model. `in_loop`: no user message follows this
    /// one. `in_calling_turn`: the responses between the user messages before and after it contain
    /// tool calls.
    fn unsupported(
        &self,
        model: &ResolvedModel,
        in_loop: bool,
        in_calling_turn: bool,
    ) -> impl Iterator<Item = (Category, u32)> {
        let place = reasoning::Place { own: reasoning::is_own(model, self.response), in_loop, in_calling_turn };
        let of_media =
            |part| unsupported_tokens(part, self.role, |media, role| cannot_read(model, media, role).is_some());
        self.parts.iter().map(move |(part, size)| {
            let unsent = reasoning::is_unsent(model, part, place);
            (size.category, if unsent { size.tokens } else { of_media(part) })
        })
    }
}

impl<'a> From<&'a Message> for PromptMessage<'a> {
    fn from(message: &'a Message) -> Self {
        let parts = message.parts.iter().map(|stored| (&stored.part, stored.size)).collect();
        Self { role: message.role, response: message.response.as_ref(), parts, overhead: message.overhead }
    }
}

impl<'a> From<&'a NewMessage> for PromptMessage<'a> {
    fn from(message: &'a NewMessage) -> Self {
        let parts = message.parts.iter().map(|stored| (&stored.part, stored.size)).collect();
        Self { role: message.role, response: message.response.as_ref(), parts, overhead: message.overhead }
    }
}

/// The size of a prompt of a transcript and of messages that are about to follow it.
pub(in crate::turn) fn size_with<'c>(
    size: ContextSize<'c>,
    model: CalledModel<'_>,
    excerpt: &Excerpt<'_>,
    following: &[PromptMessage<'_>],
) -> ContextSize<'c> {
    let grown = size.with(following.iter().map(PromptMessage::tokens).sum());
    let Some(model) = model.resolved else {
        return grown;
    };
    let measured = excerpt.messages.len() - size.unmeasured(&excerpt.messages).len();
    let unsupported = unsupported_from(measured, model, excerpt, following);
    grown.without_unsupported(unsupported.values().copied().map(i64::from).sum())
}

/// Tokens of a transcript that are not sent to a model, by category: media that are replaced by
/// notes, reasoning, and items of another provider.
pub(in crate::turn) fn unsupported(model: &ResolvedModel, excerpt: &Excerpt<'_>) -> BTreeMap<Category, u32> {
    unsupported_from(0, model, excerpt, &[])
}

/// Like [`unsupported`], without the first messages, and with messages that are about to follow.
fn unsupported_from(
    first: usize,
    model: &ResolvedModel,
    Excerpt { messages, results, is_end }: &Excerpt<'_>,
    following: &[PromptMessage<'_>],
) -> BTreeMap<Category, u32> {
    let results = PromptMessage::of_results(results);
    let stored = messages.len();
    let before = messages.len() + 1;
    let of_user = |role: &Role| *role == Role::User;
    // The last user message: reasoning after it is in the current loop. The end of a transcript may
    // begin in the middle of the loop.
    let spoke = following.iter().rposition(|message| of_user(&message.role)).map(|at| before + at);
    let spoke = spoke.or_else(|| messages.iter().rposition(|message| of_user(&message.role)));
    let loop_starts = spoke.map_or(usize::from(!is_end), |at| at + 1);
    let told = messages.iter().map(|it| (it.role, it.calls()));
    let told = told.chain([(Role::Assistant, false)]);
    let told = told.chain(following.iter().map(|it| (it.role, it.calls())));
    let calling = calling_turns(told);
    let mut unsupported = BTreeMap::new();
    let mut add = |at: usize, message: &PromptMessage<'_>| {
        for (category, tokens) in
            message.unsupported(model, at >= loop_starts, calling[at]).filter(|(_, tokens)| *tokens > 0)
        {
            let sum: &mut u32 = unsupported.entry(category).or_default();
            *sum = sum.saturating_add(tokens);
        }
    };
    for (at, message) in messages.iter().enumerate().skip(first) {
        add(at, &message.into());
    }
    add(stored, &results);
    for (at, message) in following.iter().enumerate() {
        add(before + at, message);
    }
    unsupported
}

impl Prompts {
    /// What has to be read of a transcript for the size of the next prompt. Nothing, if it has no
    /// media, reasoning or provider items that change the size for this model. All such parts, if
    /// no call was measured. Otherwise the messages since that call. Text is not read.
    pub(in crate::turn) async fn excerpt(
        &self,
        key: &SessionKey,
        size: &ContextSize<'_>,
        model: CalledModel<'_>,
        holds: ModelDependent,
    ) -> Result<Excerpt<'static>, Error> {
        let Some(resolved) = model.resolved else {
            return Ok(Excerpt::default());
        };
        let ModelDependent { media, reasoning, items } = holds;
        let withheld = (reasoning || items) && model.withholds_parts();
        if !(media || withheld) || !size.has_unmeasured() {
            return Ok(Excerpt::default());
        }
        let excerpt = match size.is_anchored() {
            true => {
                let messages = self.newest(key, |newest| size.is_suffix_sufficient(newest, SLACK)).await?;
                Excerpt { messages: Cow::Owned(messages), results: Vec::new(), is_end: true }
            }
            false => self.model_dependent(key, resolved, holds).await?,
        };
        let results = if media { self.store.open_results(key).await? } else { Vec::new() };
        Ok(Excerpt { results, ..excerpt })
    }

    /// The parts of a session's transcript that are not sent to every model.
    pub(in crate::turn) async fn model_dependent(
        &self,
        key: &SessionKey,
        model: &ResolvedModel,
        ModelDependent { media: _, reasoning, items: _ }: ModelDependent,
    ) -> Result<Excerpt<'static>, Error> {
        let with_reasoning = reasoning && CalledModel::from(model).withholds_parts();
        let messages = self.store.variable(key, with_reasoning, &[LATEST]).await?;
        Ok(Excerpt { messages: Cow::Owned(messages), results: Vec::new(), is_end: false })
    }

    /// The newest messages without their text, in order: until `is_enough`, or up to a limit.
    pub(in crate::turn) async fn newest(
        &self,
        key: &SessionKey,
        is_enough: impl Fn(&[Message]) -> bool + Send,
    ) -> Result<Vec<Message>, Error> {
        let mut newest = Vec::new();
        let mut at = LATEST;
        loop {
            let read = self.store.newest(key, at, NEWEST).await?;
            let was_last = read.len() < NEWEST as usize;
            for PlacedMessage { place, message } in read {
                at = place;
                newest.push(message);
            }
            newest.reverse();
            if was_last || is_enough(&newest) || newest.len() >= MAX_NEWEST_MESSAGES {
                return Ok(newest);
            }
            newest.reverse();
        }
    }
}

/// Tokens of messages as stored.
pub(in crate::turn) fn transcript_tokens(messages: &[Message]) -> i64 {
    messages.iter().map(|message| i64::from(prune::size(message))).sum()
}

/// Bytes of a tool's definition.
pub(in crate::turn) fn definition_bytes(tool: &Tool) -> usize {
    tool.name.len() + tool.description.len() + tool.input_schema.as_deref().map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        context::testing,
        model::{Anchor, SessionConfig, TokenBasis, Usage},
        provider::openai::dialect,
        turn::context::{
            measured::{host_part, new_message},
            prompt_call::own_size,
            reasoning::tests::{conversation, model},
        },
    };

    fn anchor(input: u32, estimated_at_anchor: i64) -> Anchor {
        Anchor {
            model: "main/m".to_owned(),
            version: 3,
            input,
            output: 10,
            estimated_at_anchor,
            cached: 0,
            estimated: input,
            basis: TokenBasis::Heuristic,
        }
    }

    /// A size and its inputs, for comparisons.
    fn shown(size: ContextSize<'_>) -> (u32, i64, i64) {
        (size.size().count.tokens, size.size().new, size.offset())
    }

    /// Row I6
    #[test]
    fn a_message_about_to_be_stored_counts_as_it_does_once_stored() {
        let config = SessionConfig::default();
        let said = testing::user("And now something else.");
        for dialect in dialect::DIALECTS {
            let model = model(dialect);
            let messages = conversation();
            let stored = [messages.clone(), vec![said.clone()]].concat();
            let part = host_part(said.parts[0].part.clone(), Role::User, false, Estimator::Characters);
            let mut following = new_message(said.id.clone(), Role::User, vec![part], None, Estimator::Characters);
            (following.parts[0].size, following.overhead) = (said.parts[0].size, said.overhead);
            let size = |messages: &[Message], following: &[PromptMessage<'_>]| {
                let counters =
                    Counters { transcript_tokens: transcript_tokens(messages), context_version: 3, anchor: None };
                let size = own_size(&config, (&model).into(), counters);
                shown(size_with(size, (&model).into(), &Excerpt::whole(messages), following))
            };
            let before = size(&messages, &[(&following).into()]);
            let after = size(&stored, &[]);
            assert_eq!(before, after, "{}: reasoning of the loop goes with no prompt after it", dialect.name);
        }
    }

    /// Row I6
    #[test]
    fn size_from_the_end_of_a_transcript_equals_the_size_from_all_of_it() {
        let config = SessionConfig::default();
        for dialect in dialect::DIALECTS {
            let model = model(dialect);
            for answer in [2, 4, 6] {
                let mut messages = conversation();
                let response = messages[answer].response.as_mut().expect("an answer");
                response.usage = Some(Usage { input: 700, ..Usage::default() });
                let anchor = anchor(700, transcript_tokens(&messages[..=answer]));
                let counters = Counters {
                    transcript_tokens: transcript_tokens(&messages),
                    context_version: 3,
                    anchor: Some(&anchor),
                };
                let size = own_size(&config, (&model).into(), counters);
                let whole = size_with(size, (&model).into(), &Excerpt::whole(&messages), &[]);
                for from in 0..=answer {
                    let end = if from == 0 { Excerpt::whole(&messages) } else { Excerpt::end(&messages[from..]) };
                    let found = size_with(size, (&model).into(), &end, &[]);
                    assert_eq!(shown(found), shown(whole), "{} {answer} {from}", dialect.name);
                }
            }
        }
    }
}
