package render

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A page of its own has one script, since browsers load no modules from file://.
// bundle joins an entry and the ES modules that it imports. A module becomes a function
// that is called once, after those it imports, and returns its exports:
//
//	import { INLINED } from "./tree.js";     const $color = (() => { const { INLINED } = $tree;
//	export class Palette { ... }             class Palette { ... }
//	                                         return { Palette }; })();
//
// Exports are copied, so only what is never assigned to again can be one. Imports and
// exports of other forms, and circles, are errors.
func bundle(modules fs.FS, entry string, source []byte) ([]byte, error) {
	b := bundler{modules: modules, exports: map[string][]string{}}
	b.script.WriteByte('\n')
	if err := b.add(entry, source); err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	return b.script.Bytes(), nil
}

type bundler struct {
	modules fs.FS
	script  bytes.Buffer
	exports map[string][]string // by path of a module that is in the script
	open    []string            // modules whose imports are being added
}

// Statements of modules begin a line and end it.
var (
	importStatement = regexp.MustCompile(`(?m)^import \{([^}]*)\} from "(\.[^"]*)";$`)
	exportKeyword   = regexp.MustCompile(`(?m)^export ((?:async )?(?:function|class|const) (\w+))`)
	moduleKeyword   = regexp.MustCompile(`(?m)^(?:import|export)\b.*`)
)

// add appends a module, after those it imports.
func (b *bundler) add(name string, source []byte) (err error) {
	if slices.Contains(b.open, name) {
		return fmt.Errorf("modules import each other: %s", strings.Join(append(b.open, name), " -> "))
	}
	b.open = append(b.open, name)
	text := importStatement.ReplaceAllStringFunc(string(source), func(statement string) string {
		names, from, importErr := b.imported(name, importStatement.FindStringSubmatch(statement))
		if err == nil {
			err = importErr
		}
		return fmt.Sprintf("const {%s} = %s;", names, variable(from))
	})
	if err != nil {
		return err
	}
	names := []string{}
	for _, match := range exportKeyword.FindAllStringSubmatch(text, -1) {
		names = append(names, match[2])
	}
	text = exportKeyword.ReplaceAllString(text, "$1")
	if rest := moduleKeyword.FindString(text); rest != "" {
		return fmt.Errorf("%s: %q is not understood", name, rest)
	}
	fmt.Fprintf(&b.script, "const %s = (() => {\n%sreturn { %s };\n})();\n", variable(name), text, strings.Join(names, ", "))
	b.exports[name], b.open = names, b.open[:len(b.open)-1]
	return nil
}

// imported adds the module that a statement names, unless it is there, and gives the
// names as a destructuring pattern.
func (b *bundler) imported(into string, statement []string) (names, from string, err error) {
	names, from = statement[1], path.Join(path.Dir(into), statement[2])
	if _, ok := b.exports[from]; !ok {
		source, err := fs.ReadFile(b.modules, from)
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", into, err)
		}
		if err := b.add(from, source); err != nil {
			return "", "", err
		}
	}
	for name := range strings.SplitSeq(names, ",") {
		name, _, _ = strings.Cut(strings.TrimSpace(name), " as ")
		if name != "" && !slices.Contains(b.exports[from], name) {
			return "", "", fmt.Errorf("%s imports %q, which %s does not export", into, name, from)
		}
	}
	return strings.ReplaceAll(names, " as ", ": "), from, nil
}

// variable holds a module's exports: $tree of viewer/tree.js.
func variable(name string) string { return "$" + strings.TrimSuffix(path.Base(name), ".js") }
