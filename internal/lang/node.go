package lang

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// readNode tells Node.js from others that offer its interface for add-ons:
// Electron, which contains it, and Deno and Bun, which do not.
func readNode(im *image) (Runtime, bool) {
	var electron, deno, bun bool
	version := ""
	im.search(func(piece []byte) bool {
		electron = electron || bytes.Contains(piece, []byte("ELECTRON_RUN_AS_NODE"))
		deno = deno || bytes.Contains(piece, []byte("DENO_DIR"))
		bun = bun || bytes.Contains(piece, []byte("BUN_INSTALL"))
		if version == "" {
			version = nodeVersion(piece)
		}
		return false
	})
	start := im.has("_ZN4node5StartEiPPc")
	r := Runtime{Kind: Node, Vendor: "Node.js", Version: version, Engine: v8Version(im)}
	switch {
	case electron:
		r.Vendor = "Electron"
	case start || version != "":
	case bun:
		return Runtime{Kind: Bun, Vendor: "Bun"}, true
	case deno:
		return Runtime{Kind: Deno, Vendor: "Deno", Engine: r.Engine}, true
	default:
		return Runtime{}, false
	}
	if _, err := FindV8Tables(im.file); err != nil {
		r.Lacks = err.Error()
	}
	return r, true
}

// nodeVersion finds what the inspector calls itself, "node.js/v20.20.2", or
// where the headers of this release are.
func nodeVersion(piece []byte) string {
	for _, prefix := range []string{"node.js/v", "nodejs.org/download/release/v"} {
		if _, rest, ok := bytes.Cut(piece, []byte(prefix)); ok {
			if v := numbers(string(rest[:min(len(rest), maxVersion)])); v != "" {
				return v
			}
		}
	}
	return ""
}

// v8Version reads the numbers of v8::internal::Version.
func v8Version(im *image) string {
	var v [4]uint32
	for i, name := range []string{"6major_E", "6minor_E", "6build_E", "6patch_E"} {
		b := im.bytesAt("_ZN2v88internal7Version"+name, 4)
		if len(b) < 4 {
			return ""
		}
		v[i] = binary.LittleEndian.Uint32(b)
	}
	return fmt.Sprintf("V8 %d.%d.%d.%d", v[0], v[1], v[2], v[3])
}
