package render

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"strings"

	"atys.dev/atys/internal/profile"
)

//go:embed viewer/*.js viewer/viewer.css viewer/page.html
var viewer embed.FS

// HTML writes a page that needs nothing but itself: an interactive flame graph
// of a tree with one column, or a comparison of one with two.
func HTML(w io.Writer, t *profile.Tree, o Options) error {
	if err := o.check(t); err != nil {
		return fmt.Errorf("render html: %w", err)
	}
	main, err := viewer.ReadFile("viewer/main.js")
	if err != nil {
		return fmt.Errorf("render html: %w", err)
	}
	if err := writePage(w, t, o, "viewer/main.js", main); err != nil {
		return fmt.Errorf("render html: %w", err)
	}
	return nil
}

// writePage fills page.html. entry is the module that starts the viewer.
func writePage(w io.Writer, t *profile.Tree, o Options, entry string, source []byte) error {
	script, err := bundle(viewer, entry, source)
	if err != nil {
		return err
	}
	style, err := viewer.ReadFile("viewer/viewer.css")
	if err != nil {
		return err
	}
	page, err := viewer.ReadFile("viewer/page.html")
	if err != nil {
		return err
	}
	var data strings.Builder
	text := base64.NewEncoder(base64.StdEncoding, &data)
	if err := encode(text, t, o); err != nil {
		return err
	}
	if err := text.Close(); err != nil {
		return err
	}
	// The policy lets the page run its own script and style and fetch nothing,
	// so that even a name that slipped through every escape could do nothing.
	policy := fmt.Sprintf("default-src 'none'; base-uri 'none'; form-action 'none'; script-src '%s'; style-src '%s'",
		fingerprint(script), fingerprint(style))
	_, err = strings.NewReplacer(
		"{{policy}}", policy,
		"{{title}}", html.EscapeString(o.title(t)),
		"{{style}}", string(style),
		"{{script}}", string(script),
		"{{data}}", data.String(),
	).WriteString(w, string(page))
	return err
}

// fingerprint is a source expression of a content security policy.
func fingerprint(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
