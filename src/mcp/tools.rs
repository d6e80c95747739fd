//! Completes a tool set with the definitions that MCP servers list.

use std::{collections::BTreeSet, time::Duration};

use super::{Error, ListedTool, MAX_TOOLS, Servers, schemas};
use crate::model::{McpServerTools, McpTool, TenantId, Tool, ToolCategory, ToolSet};

/// Maximum characters of a tool's name that every provider accepts.
const MAX_NAME_CHARS: usize = 64;

/// Maximum bytes of a schema, the same as for tools of the host.
const MAX_SCHEMA_BYTES: usize = 256 << 10;

impl Servers {
    /// Adds the tools that servers list to a tenant's tool set, and fills in the fields that the set leaves to the
    /// servers.
    pub async fn resolve(&self, tenant: &TenantId, set: &mut ToolSet) -> Result<(), Error> {
        for tool in &mut set.tools {
            let Some(McpTool { server, tool: name }) = tool.mcp.clone() else {
                continue;
            };
            if tool.timeout.is_none() {
                tool.timeout = Some(self.server(tenant, &server)?.call_timeout);
            }
            if tool.description.is_empty() || tool.input_schema.is_none() {
                let listed = self.listed(tenant, &server).await?;
                complete(tool, named(&server, &listed, &name)?)?;
            } else {
                self.server(tenant, &server)?;
            }
        }
        let mut taken: BTreeSet<String> = set.tools.iter().map(|tool| tool.name.clone()).collect();
        for selection in std::mem::take(&mut set.mcp_servers) {
            let timeout = self.server(tenant, &selection.server)?.call_timeout;
            let listed = self.listed(tenant, &selection.server).await?;
            for listed in chosen(&selection, &listed)? {
                let tool = offered(&selection, listed, timeout)?;
                if !taken.insert(tool.name.clone()) {
                    let name = &tool.name;
                    let reason = format!("the tool set already has a tool named {name:?}");
                    return Err(unusable(&selection.server, reason));
                }
                set.tools.push(tool);
            }
            if set.tools.len() + set.provider_tools.len() > MAX_TOOLS {
                let reason = format!("the tool set would have more than {MAX_TOOLS} tools");
                return Err(unusable(&selection.server, reason));
            }
        }
        Ok(())
    }
}

/// The tools that a selection names, in the server's order. If it names none, all tools.
fn chosen<'a>(selection: &McpServerTools, listed: &'a [ListedTool]) -> Result<Vec<&'a ListedTool>, Error> {
    for name in &selection.only {
        named(&selection.server, listed, name)?;
    }
    let is_chosen = |tool: &&ListedTool| selection.only.is_empty() || selection.only.contains(&tool.name);
    Ok(listed.iter().filter(is_chosen).collect())
}

fn named<'a>(server: &str, listed: &'a [ListedTool], name: &str) -> Result<&'a ListedTool, Error> {
    listed.iter().find(|tool| tool.name == name).ok_or_else(|| unusable(server, format!("it lists no tool {name:?}")))
}

/// Fills in the fields of a tool that the host left to the server.
fn complete(tool: &mut Tool, listed: &ListedTool) -> Result<(), Error> {
    if tool.description.is_empty() {
        tool.description.clone_from(&listed.description);
    }
    if tool.input_schema.is_none() {
        let server = tool.mcp.as_ref().map_or("", |mcp| &mcp.server);
        tool.input_schema = Some(schema(server, listed)?);
    }
    Ok(())
}

/// The definition that the model gets for a listed tool.
fn offered(selection: &McpServerTools, listed: &ListedTool, call_timeout: Duration) -> Result<Tool, Error> {
    let McpServerTools { server, only: _, prefix, requires_approval, timeout, output_limits } = selection;
    let name = format!("{prefix}{}", listed.name.replace(is_foreign, "_"));
    if name.is_empty() || name.len() > MAX_NAME_CHARS {
        let reason = format!("the name {name:?} must have 1 to {MAX_NAME_CHARS} characters");
        return Err(unusable(server, reason));
    }
    Ok(Tool {
        name,
        description: listed.description.clone(),
        input_schema: Some(schema(server, listed)?),
        requires_approval: *requires_approval,
        timeout: Some(timeout.unwrap_or(call_timeout)),
        output_limits: *output_limits,
        category: ToolCategory::McpTools,
        deferred: false,
        strict: None,
        mcp: Some(McpTool { server: server.clone(), tool: listed.name.clone() }),
    })
}

fn schema(server: &str, listed: &ListedTool) -> Result<String, Error> {
    if listed.input_schema.len() > MAX_SCHEMA_BYTES {
        let name = &listed.name;
        let reason = format!("the schema of {name:?} has more than {MAX_SCHEMA_BYTES} bytes");
        return Err(unusable(server, reason));
    }
    Ok(schemas::normalized(&listed.input_schema))
}

/// Whether the character is not among those that all providers accept in names.
fn is_foreign(c: char) -> bool {
    !(c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

fn unusable(server: &str, reason: String) -> Error {
    Error::InvalidTools { server: server.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str) -> ListedTool {
        ListedTool {
            name: name.to_owned(),
            description: format!("does {name}"),
            input_schema: r#"{"type":"object"}"#.to_owned(),
        }
    }

    fn selection(prefix: &str, only: &[&str]) -> McpServerTools {
        McpServerTools {
            server: "s".to_owned(),
            only: only.iter().map(|name| (*name).to_owned()).collect(),
            prefix: prefix.to_owned(),
            requires_approval: false,
            timeout: None,
            output_limits: None,
        }
    }

    #[test]
    fn names_get_the_prefix_and_only_characters_that_all_providers_take() {
        for (prefix, name, expected) in [
            ("", "search", "search"),
            ("docs_", "search", "docs_search"),
            ("", "fs.read/file", "fs_read_file"),
            ("x-", "größe", "x-gr__e"),
        ] {
            let tool = offered(&selection(prefix, &[]), &listed(name), Duration::MAX).unwrap();
            let mcp = tool.mcp.unwrap();
            assert_eq!((tool.name.as_str(), mcp.tool.as_str()), (expected, name));
        }
        let long = "n".repeat(MAX_NAME_CHARS);
        assert!(offered(&selection("", &[]), &listed(&long), Duration::MAX).is_ok());
        assert!(offered(&selection("p", &[]), &listed(&long), Duration::MAX).is_err());
    }

    #[test]
    fn a_selection_takes_the_named_tools_in_the_order_of_the_server() {
        let all = [listed("a"), listed("b"), listed("c")];
        let names = |only: &[&str]| {
            let chosen = chosen(&selection("", only), &all);
            chosen.map(|tools| tools.iter().map(|tool| tool.name.clone()).collect())
        };
        assert_eq!(names(&[]), Ok(vec!["a".into(), "b".into(), "c".into()]));
        assert_eq!(names(&["c", "a"]), Ok(vec!["a".into(), "c".into()]));
        let missing: Result<Vec<String>, Error> = names(&["a", "d"]);
        assert!(matches!(missing, Err(Error::InvalidTools { .. })));
    }

    #[test]
    fn a_schema_over_the_limit_is_refused() {
        let mut tool = listed("a");
        tool.input_schema = "x".repeat(MAX_SCHEMA_BYTES + 1);
        assert!(offered(&selection("", &[]), &tool, Duration::MAX).is_err());
    }
}
