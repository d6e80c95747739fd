//! A paginated list of tools. It ends if the server names no further page, or a page adds nothing new. Tools listed
//! until then are kept.

use std::collections::BTreeSet;

use super::ListedTool;

/// Maximum number of pages.
const MAX_PAGES: usize = 64;

/// The tools of the pages read so far.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) tools: Vec<ListedTool>,
    names: BTreeSet<String>,
    cursors: BTreeSet<String>,
    pages: usize,
}

/// What to do after a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Read the page at this cursor.
    Page(String),
    /// Stop: the list is complete.
    End,
    /// Stop, although the server names a further page: the list does not advance, or it has too many pages.
    Endless,
}

impl Listing {
    /// Adds a page. If several tools have the same name, the first one is kept.
    pub(super) fn add(&mut self, page: Vec<ListedTool>, next_cursor: Option<String>) -> Next {
        self.pages += 1;
        let (held, is_empty) = (self.tools.len(), page.is_empty());
        for tool in page {
            if self.names.insert(tool.name.clone()) {
                self.tools.push(tool);
            }
        }
        let Some(cursor) = next_cursor.filter(|cursor| !cursor.is_empty()) else {
            return Next::End;
        };
        let repeats = !is_empty && self.tools.len() == held;
        if repeats || self.pages == MAX_PAGES || !self.cursors.insert(cursor.clone()) {
            return Next::Endless;
        }
        Next::Page(cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(names: &str) -> Vec<ListedTool> {
        let listed =
            |name: char| ListedTool { name: name.to_string(), description: String::new(), input_schema: String::new() };
        names.chars().map(listed).collect()
    }

    #[test]
    fn m03_a_list_ends_where_its_cursor_does_not_advance_and_keeps_its_tools() {
        type Page<'a> = (&'a str, Option<&'a str>);
        let page = |cursor: &str| Next::Page(cursor.to_owned());
        let table: [(&[Page<'_>], Next, &str); 7] = [
            (&[("ab", None)], Next::End, "ab"),
            (&[("ab", Some(""))], Next::End, "ab"),
            (&[("ab", Some("1")), ("c", None)], Next::End, "abc"),
            (&[("a", Some("1")), ("", Some("2"))], page("2"), "a"),
            (&[("a", Some("1")), ("b", Some("1"))], Next::Endless, "ab"),
            (&[("ab", Some("1")), ("ab", Some("2"))], Next::Endless, "ab"),
            (&[("a", Some("1")), ("b", Some("2")), ("c", Some("1"))], Next::Endless, "abc"),
        ];
        for (pages, expected, names) in table {
            let mut listing = Listing::default();
            let mut next = Next::End;
            for (page, cursor) in pages {
                next = listing.add(tools(page), cursor.map(str::to_owned));
            }
            assert_eq!((next, listing.tools), (expected, tools(names)), "{pages:?}");
        }
    }

    #[test]
    fn m03_a_list_of_too_many_pages_keeps_those_that_were_read() {
        let mut listing = Listing::default();
        for page in 1..MAX_PAGES {
            let next = listing.add(Vec::new(), Some(page.to_string()));
            assert_eq!(next, Next::Page(page.to_string()));
        }
        assert_eq!(listing.add(tools("a"), Some("last".into())), Next::Endless);
        assert_eq!(listing.tools, tools("a"));
    }
}
