//! Estimated token cost of media, and replacement of media that a model does not support.

use super::template::picture_tokens::ImageCost;
use crate::model::{
    Media, Message, Part, Role, Tally,
    media::{Kind, OmittedMedia, Source, UNSUPPORTED_TEXT},
};

/// Estimated costs of media other than images, the same for all models: minimum and maximum in tokens, and the number
/// of bytes per token.
const DOCUMENT: Rate = Rate { least: 2_000, most: 200_000, bytes: 50 }; // 100 KB per page
const AUDIO: Rate = Rate { least: 32, most: 200_000, bytes: 500 }; // 32 tokens and 16 KB per second
const VIDEO: Rate = Rate { least: 263, most: 1_000_000, bytes: 1_000 }; // 263 tokens and 256 KB per second

#[derive(Debug, Clone, Copy)]
struct Rate {
    least: u32,
    most: u32,
    bytes: u64,
}

/// Estimated tokens of a medium. `pictures` is the cost of images for the model. The length of the base64 text that is
/// sent to the service has no influence.
pub fn tokens(media: &Media, pictures: ImageCost) -> u32 {
    let rate = match media.kind() {
        Kind::Image => return pictures.tokens(media.blob().and_then(|kept| kept.pixels)),
        Kind::Document => DOCUMENT,
        Kind::Audio => AUDIO,
        Kind::Video => VIDEO,
    };
    match &media.source {
        Source::Blob(kept) => {
            let tokens = u32::try_from(kept.bytes / rate.bytes).unwrap_or(u32::MAX);
            tokens.clamp(rate.least, rate.most)
        }
        Source::Url(_) => rate.least,
    }
}

/// Tokens that the estimate of a part includes but that are not sent to the model: media for which `refused` returns
/// true are replaced by a short text.
pub fn unsupported_tokens(part: &Part, role: Role, refused: impl Fn(&Media, Role) -> bool) -> u32 {
    let words = Tally::default().plus(UNSUPPORTED_TEXT).tokens();
    let media = part.media().filter(|media| refused(media, role));
    media.map(|media| tokens(media, ImageCost::default()).saturating_sub(words)).fold(0, u32::saturating_add)
}

/// A medium that was replaced by a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    pub left_out: OmittedMedia,
    /// The medium is new in this prompt: media before the model's last response were reported with an earlier prompt.
    pub is_new: bool,
}

/// Replaces each medium for which `refused` returns a reason with a fixed text. Returns the replaced media.
pub fn leave_out(
    messages: &mut [Message],
    model: &str,
    refused: impl Fn(&Media, Role) -> Option<String>,
) -> Vec<Replaced> {
    let own = |message: &Message| message.response.as_ref().is_some_and(|response| response.model == model);
    let news = messages.iter().rposition(own).map_or(0, |last| last + 1);
    let mut replaced = Vec::new();
    for (at, message) in messages.iter_mut().enumerate() {
        let id = message.id.clone();
        let role = message.role;
        message.replace_media(|part, media| {
            let why = refused(media, role)?;
            let media_type = media.media_type.clone();
            let filename = media.filename.clone();
            let left_out = OmittedMedia { message: id.clone(), part, media_type, filename, why };
            replaced.push(Replaced { left_out, is_new: at >= news });
            Some(UNSUPPORTED_TEXT.to_owned())
        });
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        context::testing,
        model::{
            BlobId, Content, OutputPart, Part,
            media::{BlobRef, Pixels},
        },
    };

    fn kept(media_type: &str, bytes: u64, pixels: Option<Pixels>) -> Media {
        let source = Source::Blob(BlobRef { id: BlobId::new("b"), bytes, pixels });
        Media { media_type: media_type.to_owned(), source, filename: String::new() }
    }

    #[test]
    fn media_are_priced_by_type_and_not_by_bytes() {
        let url = |media_type: &str| Media {
            source: Source::Url("https://example.org".to_owned()),
            ..kept(media_type, 0, None)
        };
        let table = [
            (kept("image/png", 3_000_000, None), 1_600),
            (kept("image/png", 3_000_000, Pixels::new(280, 280)), 258),
            (kept("image/png", 3_000_000, Pixels::new(1_920, 1_080)), 2_691),
            (kept("image/png", 1, Pixels::new(100_000, 100_000)), 3_969),
            (url("image/png"), 1_600),
            (kept("application/pdf", 1_000, None), 2_000),
            (kept("application/pdf", 1_000_000, None), 20_000),
            (url("application/pdf"), 2_000),
            (kept("audio/wav", 160_000, None), 320),
            (kept("video/mp4", 1_000_000, None), 1_000),
            (kept("video/mp4", u64::MAX, None), 1_000_000),
        ];
        for (media, expected) in table {
            assert_eq!(tokens(&media, ImageCost::default()), expected, "{media:?}");
        }
    }

    /// Row D4
    #[test]
    fn unsupported_media_are_counted_as_their_placeholder_text() {
        let pdf = || kept("application/pdf", 1_000_000, None);
        let mut given = testing::results(&[("look", "seen")]);
        let Content::ToolResult(result) = &mut given.parts[0].part.content else { panic!("not a result") };
        result.parts.push(OutputPart::Media(kept("image/png", 1, None)));
        let shown = Part::new(Content::Media(pdf()));
        let words = Tally::default().plus(UNSUPPORTED_TEXT).tokens();
        let given = &given.parts[0].part;
        assert_eq!(unsupported_tokens(&Part::text("a"), Role::User, |_, _| true), 0);
        assert_eq!(unsupported_tokens(&shown, Role::User, |_, _| true), 20_000 - words);
        for (refusing, expected) in [(Role::Tool, 1_600 - words), (Role::User, 0)] {
            assert_eq!(unsupported_tokens(given, Role::Tool, |_, role| role == refusing), expected, "{refusing:?}");
        }
    }

    /// Row D4
    #[test]
    fn unsupported_media_become_placeholder_text_and_are_reported_once() {
        let picture = || kept("image/png", 1, None);
        let mut given = testing::results(&[("look", "seen")]);
        let Content::ToolResult(result) = &mut given.parts[0].part.content else { panic!("not a result") };
        result.parts.push(OutputPart::Media(picture()));
        let said = || {
            let parts = vec![Part::text("a"), Part::new(Content::Media(picture())), Part::text("b")];
            testing::message(Role::User, parts)
        };
        let mut messages = vec![said(), testing::calls(&["look"]), given];
        let why = |_: &Media, role| (role == Role::User).then(|| "no pictures".to_owned());
        let left_out = leave_out(&mut messages, "a/b", why);
        let at: Vec<usize> = left_out.iter().map(|left| left.left_out.part).collect();
        assert_eq!((at, left_out[0].left_out.why.as_str()), (vec![1], "no pictures"));
        assert_eq!(messages[0].parts[1].part.content, Content::Text(UNSUPPORTED_TEXT.to_owned()));
        let Content::ToolResult(result) = &messages[2].parts[0].part.content else { panic!("not a result") };
        assert_eq!(result.media().count(), 1, "media in tool results are supported");

        let all = |_: &Media, _| Some("nothing".to_owned());
        let mut answered = testing::assistant("I see.");
        answered.response = Some(testing::response("a/b"));
        let mut messages = vec![said(), answered, said()];
        let new = |replaced: Vec<Replaced>| replaced.into_iter().map(|it| it.is_new).collect::<Vec<_>>();
        let told = new(leave_out(&mut messages.clone(), "a/b", all));
        assert_eq!(told, [false, true], "the first medium was reported with an earlier prompt");
        assert_eq!(
            new(leave_out(&mut messages, "a/c", all)),
            [true, true],
            "another model sees both for the first time"
        );
        assert!(messages.iter().all(|message| message.media().next().is_none()));
    }
}
