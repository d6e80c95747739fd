//! What of a host's wishes holds for one call of the model.

use crate::model::{Generation, Tool, generation::ToolChoice};

/// The wishes for the call of that step with these tools. A forced call holds for the first step only, so that it cannot loop;
/// what asks for a tool that the model is not told of is left out.
pub fn for_step(wanted: &Generation, step: u32, tools: &[Tool]) -> Generation {
    let mut generation = wanted.clone();
    if generation.tool_choice.as_ref().is_some_and(|choice| !possible(choice, tools)) {
        generation.tool_choice = None;
    }
    if step > 1 && generation.tool_choice.as_ref().is_some_and(ToolChoice::is_forced) {
        generation.tool_choice = Some(ToolChoice::Auto);
    }
    if tools.is_empty() {
        generation.parallel_tool_calls = None;
    }
    generation
}

/// Whether a model with these tools can be told so. Providers refuse a choice where there is nothing to choose from.
fn possible(choice: &ToolChoice, tools: &[Tool]) -> bool {
    match choice {
        ToolChoice::Auto | ToolChoice::None | ToolChoice::Required => !tools.is_empty(),
        ToolChoice::Tool(name) => tools.iter().any(|tool| tool.name == *name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::testing;

    fn chosen(choice: ToolChoice, step: u32, tools: &[&str]) -> Option<ToolChoice> {
        let tools: Vec<Tool> = tools.iter().map(|name| testing::tool(name)).collect();
        let wanted = Generation { tool_choice: Some(choice), ..Generation::default() };
        for_step(&wanted, step, &tools).tool_choice
    }

    #[test]
    fn a_forced_call_holds_for_the_first_step_only() {
        let (auto, none, look) = (ToolChoice::Auto, ToolChoice::None, ToolChoice::Tool("look".to_owned()));
        for (choice, later) in
            [(ToolChoice::Required, &auto), (look, &auto), (ToolChoice::None, &none), (ToolChoice::Auto, &auto)]
        {
            assert_eq!(chosen(choice.clone(), 1, &["look"]), Some(choice.clone()));
            assert_eq!(chosen(choice.clone(), 2, &["look"]).as_ref(), Some(later), "{choice:?}");
        }
    }

    #[test]
    fn a_choice_without_its_tool_is_left_out() {
        let look = || ToolChoice::Tool("look".to_owned());
        assert_eq!(chosen(look(), 1, &["list"]), None);
        assert_eq!(chosen(look(), 2, &["list"]), None);
        for choice in [ToolChoice::Auto, ToolChoice::None, ToolChoice::Required, look()] {
            assert_eq!(chosen(choice, 1, &[]), None);
        }
        let wanted = Generation { parallel_tool_calls: Some(false), ..Generation::default() };
        assert_eq!(for_step(&wanted, 1, &[]).parallel_tool_calls, None);
        assert_eq!(for_step(&wanted, 1, &[testing::tool("look")]), wanted);
    }
}
