//! A trie that finds the longest token that a text begins with.

/// The tokens of a vocabulary as a trie of bytes. The children of a node are adjacent and sorted by byte, so that a
/// node only stores where they start.
#[derive(Debug)]
pub(super) struct Trie {
    /// By node: its first child. Its children end where those of the next node begin.
    children: Vec<u32>,
    /// By node: the byte that leads to it.
    bytes: Vec<u8>,
    /// By node: the token that ends there, or [`NONE`].
    tokens: Vec<u32>,
}

/// No token.
const NONE: u32 = u32::MAX;

/// A node during construction: the range of sorted tokens below it, its depth in bytes, and the longest token among its
/// prefixes.
struct Open {
    first: usize,
    end: usize,
    depth: usize,
    prefix: u32,
}

impl Trie {
    /// Builds the trie of these tokens, and returns for each token the longest other token that is a prefix of it.
    pub(super) fn new(tokens: &[&[u8]]) -> (Self, Vec<Option<u32>>) {
        let mut sorted: Vec<(&[u8], u32)> = tokens.iter().copied().zip(0..).collect();
        sorted.sort_unstable();
        let mut prefixes = vec![None; tokens.len()];
        let mut trie = Self { children: Vec::new(), bytes: vec![0], tokens: Vec::new() };
        let mut nodes = vec![Open { first: 0, end: sorted.len(), depth: 0, prefix: NONE }];
        let mut node = 0;
        while let Some(&Open { mut first, end, depth, mut prefix }) = nodes.get(node) {
            let mut token = NONE;
            if let Some((bytes, rank)) = sorted[..end].get(first)
                && bytes.len() == depth
            {
                token = *rank;
                prefixes[token as usize] = (prefix != NONE).then_some(prefix);
                prefix = token;
                first += 1;
            }
            trie.tokens.push(token);
            trie.children.push(number(nodes.len()));
            while first < end {
                let byte = sorted[first].0[depth];
                let rest = &sorted[first..end];
                let same = rest.partition_point(|(bytes, _)| bytes[depth] == byte);
                trie.bytes.push(byte);
                nodes.push(Open { first, end: first + same, depth: depth + 1, prefix });
                first += same;
            }
            node += 1;
        }
        trie.children.push(number(nodes.len()));
        (trie, prefixes)
    }

    /// The longest token that a text begins with.
    pub(super) fn longest(&self, text: &[u8]) -> Option<u32> {
        let mut node = 0;
        let mut longest = NONE;
        for byte in text {
            let Some(child) = self.child(node, *byte) else {
                break;
            };
            node = child;
            let token = self.tokens[node];
            if token != NONE {
                longest = token;
            }
        }
        (longest != NONE).then_some(longest)
    }

    /// The token that is equal to a text.
    pub(super) fn exactly(&self, text: &[u8]) -> Option<u32> {
        let node = text.iter().try_fold(0, |node, byte| self.child(node, *byte))?;
        let token = self.tokens[node];
        (token != NONE).then_some(token)
    }

    fn child(&self, node: usize, byte: u8) -> Option<usize> {
        let first = self.children[node] as usize;
        let bytes = &self.bytes[first..self.children[node + 1] as usize];
        // Most nodes have few children; the root has all 256.
        let place = match bytes.len() {
            0..=8 => bytes.iter().position(|child| *child == byte)?,
            256 => usize::from(byte),
            _ => bytes.binary_search(&byte).ok()?,
        };
        Some(first + place)
    }
}

/// There are fewer nodes than bytes in all tokens, which are a few million.
fn number(nodes: usize) -> u32 {
    u32::try_from(nodes).unwrap_or(NONE)
}
