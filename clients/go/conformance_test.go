package contextd_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/contextd/contextd/clients/go/internal/testserver"
)

func TestTheClientPassesTheConformanceKit(t *testing.T) {
	t.Parallel()
	if err := exec.Command(testserver.Program(), "help", "conformance").Run(); err != nil {
		t.Skip("this contextd has no conformance kit")
	}
	driver := filepath.Join(t.TempDir(), "driver")
	in(t, ".", nil, "go", "build", "-o", driver, "./conformance")
	out, err := exec.CommandContext(t.Context(), testserver.Program(), "conformance", "--timeout", "1m", "--", driver).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
