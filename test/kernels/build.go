package kernels

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
)

// MissingToolError is a program of the host that is needed and not there.
type MissingToolError struct {
	Tool   string
	WayOut string
}

func (e *MissingToolError) Error() string {
	return fmt.Sprintf("%s is not installed: %s", e.Tool, e.WayOut)
}

func find(tool, wayOut string) (string, error) {
	p, err := exec.LookPath(tool)
	if err != nil {
		return "", &MissingToolError{Tool: tool, WayOut: wayOut}
	}
	return p, nil
}

// Build compiles the Go program of an import path into dir, as a static
// binary that runs in a machine without any library, and returns its path.
// The working directory must be inside a module that knows the import path.
func Build(ctx context.Context, dir, importPath string) (string, error) {
	tool, err := find("go", "put the go command on PATH")
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, path.Base(importPath))
	// The stamp would need git to trust the checkout of another user.
	cmd := exec.CommandContext(ctx, tool, "build", "-trimpath", "-buildvcs=false", "-o", out, importPath)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %q: %w: %s", importPath, err, bytes.TrimSpace(said))
	}
	return out, nil
}
