package contextd_test

import (
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/contextd/contextd/clients/go/internal/testserver"
)

// The blocks of README.md are run as they stand, in a module of their own that gets this one as its users do, from the
// folder instead of from a tag.

var blocks = regexp.MustCompile("(?ms)^```go\n(.*?)^```")

const head = `package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/contextd/contextd/clients/go"
)

var _, _, _ = errors.New, fmt.Sprint, time.Second

type place struct {
	City string ` + "`json:\"city\"`" + `
}

func main() {
	client := contextd.Must(contextd.Connect(""))
	weather := contextd.NewTool("get_weather", "Current weather of a city.", func(_ context.Context, in place) (string, error) {
		return "18 °C in " + in.City, nil
	})
	for i, block := range blocks {
		session := contextd.Must(client.Session(context.Background(), "", weather))
		if err := block(context.Background(), client, session, weather); err != nil {
			panic(fmt.Sprintf("block %d: %v", i+1, err))
		}
	}
}

var blocks = []func(context.Context, *contextd.Client, *contextd.Session, *contextd.Tool) error{
`

// quickStart is the first block, a program; all is a program of the others, which are statements.
func programs(t *testing.T) (quickStart, all string) {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := blocks.FindAllStringSubmatch(string(readme), -1)
	var text strings.Builder
	text.WriteString(head)
	for _, block := range found[1:] {
		fmt.Fprintf(&text, "func(ctx context.Context, client *contextd.Client, session *contextd.Session, weather *contextd.Tool) error {\n{\n%s}\nreturn nil\n},\n", block[1])
	}
	text.WriteString("}\n")
	return found[0][1], text.String()
}

func TestTheREADMEWorksAsWritten(t *testing.T) {
	t.Parallel()
	quickStart, all := programs(t)
	module := t.TempDir()
	folder, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"quick": quickStart, "all": all} {
		if err := os.Mkdir(filepath.Join(module, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(module, name, "main.go"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	in(t, module, nil, "go", "mod", "init", "example.com/trip")
	in(t, module, nil, "go", "mod", "edit", "-replace", "github.com/contextd/contextd/clients/go="+folder)
	in(t, module, nil, "go", "mod", "tidy")
	built := filepath.Join(module, "built")
	in(t, module, nil, "go", "build", "-o", built+"/", "./...")

	env := []string{"CONTEXTD_URL=" + testserver.Start(t, nil, nil).URL()}
	equal(t, in(t, module, env, filepath.Join(built, "quick")), "The weather in Paris: 18 °C in Paris\n")
	in(t, module, env, filepath.Join(built, "all"))
}

func TestTheQuickStartIsShortAndAsGofmtWritesIt(t *testing.T) {
	program, _ := programs(t)
	formatted, err := format.Source([]byte(program))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, program, string(formatted))
	lines := 0
	for line := range strings.SplitSeq(program, "\n") {
		if strings.TrimSpace(line) != "" {
			lines++
		}
	}
	equal(t, lines <= 15, true)
}

// in runs a program in a folder.
func in(t *testing.T, folder string, env []string, name string, arguments ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, arguments...)
	command.Dir = folder
	command.Env = append(os.Environ(), env...)
	var problems strings.Builder
	command.Stderr = &problems
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, arguments, err, problems.String())
	}
	return string(out)
}
