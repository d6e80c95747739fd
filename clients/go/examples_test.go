package contextd_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contextd/contextd/clients/go/internal/testserver"
)

// examples/go is run as it stands.

const slowWords = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"

// agentScript calls both tools, then says their results, what it was told meanwhile, and many words.
var agentScript = object{"steps": []any{
	first(object{"call": 0, "user_contains": "weather"}, say(text("Let me look."), callOf("get_weather", object{"city": "Paris"}), callOf("get_time", object{"city": "Paris"}))),
	say(slowly("{{result:get_weather}}, {{result:get_time}}. {{user}} " + slowWords)),
}}

const agentSays = `Let me look.
-> get_weather {"city":"Paris"}

-> get_time {"city":"Paris"}
18 °C and sunny in Paris, 14:05 in Paris. Keep it short. ` + slowWords + `
[turn_completed] `

func buildAgent(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "agent")
	in(t, "../../examples/go", nil, "go", "build", "-o", program, "./agent")
	return program
}

func startAgent(t *testing.T, program string, server *testserver.Server) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	agent := exec.CommandContext(t.Context(), program, "What is the weather and time in Paris?", "Keep it short.")
	agent.Env = append(os.Environ(), "CONTEXTD_URL="+server.URL())
	agent.Stderr = os.Stderr
	out, err := agent.StdoutPipe()
	if err == nil {
		err = agent.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return agent, bufio.NewReader(out)
}

// readTo reads what an agent prints, up to a text or to the end.
func readTo(t *testing.T, out *bufio.Reader, end string) string {
	t.Helper()
	var said strings.Builder
	for end == "" || !strings.HasSuffix(said.String(), end) {
		letter, _, err := out.ReadRune()
		if err != nil {
			break
		}
		said.WriteRune(letter)
	}
	return said.String()
}

func agentServer(t *testing.T) *testserver.Server {
	t.Helper()
	return testserver.Start(t, map[string]any{"agent": agentScript}, map[string]string{"CONTEXTD_DEFAULT_MODEL": "scripted/agent"})
}

func TestTheAgentSaysEachWordOnceThroughAKillOfTheServer(t *testing.T) {
	t.Parallel()
	server := agentServer(t)
	agent, out := startAgent(t, buildAgent(t), server)
	said := readTo(t, out, "five six")
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	said += readTo(t, out, "")
	// If the tools are faster than the message, only the repetition of the step takes it, and its answer is another one.
	if answer, repeated, again := strings.Cut(said, "\n[again]\n"); again {
		calls, _, _ := strings.Cut(answer, "18 °C")
		said = calls + repeated
	}
	if err := agent.Wait(); err != nil || !strings.HasPrefix(said, agentSays) {
		t.Errorf("%v: it said %q, not %q", err, said, agentSays)
	}
}

func TestTheAgentGoesOnWithTheTurnThatItLeft(t *testing.T) {
	t.Parallel()
	server, program := agentServer(t), buildAgent(t)
	killed, out := startAgent(t, program, server)
	readTo(t, out, "Let me look.")
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	agent, out := startAgent(t, program, server)
	said := readTo(t, out, "")
	if err := agent.Wait(); err != nil {
		t.Fatal(err)
	}
	equal(t, strings.HasPrefix(said, "Let me look.\n-> get_weather"), true)
	equal(t, strings.Count(said, "[turn_completed]"), 2)
}

func TestTheAgentHasAtMostFortyLines(t *testing.T) {
	program, err := os.ReadFile("../../examples/go/agent/main.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range strings.SplitSeq(string(program), "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			lines++
		}
	}
	equal(t, lines <= 40, true)
}
