package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/wire/atysv1"
)

func watchCommand() *cobra.Command {
	var f objectFlags
	c := &cobra.Command{
		Use:   "watch profiles|agents|targets|relays [NAME]",
		Short: "List what a server knows, then each change, until Ctrl-C",
		Example: `  atys watch agents
  atys watch profile checkout-cpu -o json`,
		RunE: func(c *cobra.Command, args []string) error {
			kind, name, err := kindAndName(args, 1, 2)
			if err = cmp.Or(err, f.checkOutput(outputs)); err != nil {
				return err
			}
			return watch(c, f, kind, name)
		},
	}
	f.clientFlags.add(c)
	f.addOutput(c, outputs, "as a table")
	return c
}

func watch(c *cobra.Command, f objectFlags, kind, name string) error {
	control, address, err := f.control()
	if err != nil {
		return err
	}
	stream, err := control.Watch(c.Context(), &atysv1.GetRequest{Kind: kind, Name: name})
	if err != nil {
		return explain(address, err)
	}
	defer stream.Close()
	show := changeWriter(os.Stdout, kind, f.output)
	for stream.Receive() {
		if err := show(stream.Msg()); err != nil {
			return err
		}
	}
	if err := stream.Err(); err != nil && c.Context().Err() == nil {
		return explain(address, err)
	}
	return nil
}

// changeWriter prints changes as they come: as rows, or for programs as a JSON
// object a line or a YAML document each.
func changeWriter(to io.Writer, kind, format string) func(*atysv1.Change) error {
	switch format {
	case "json", "yaml":
		return func(c *atysv1.Change) error { return writeChange(to, format, c) }
	}
	wide := format == "wide"
	fmt.Fprintln(to, "WHAT     "+strings.Join(objectHead(kind, wide), "  "))
	return func(c *atysv1.Change) error {
		if c.GetObject() == nil {
			return nil
		}
		row, err := objectRow(c.GetObject(), wide, time.Now())
		if err != nil {
			return err
		}
		for i := range row {
			row[i] = render.Printable(row[i])
		}
		_, err = fmt.Fprintf(to, "%-7s  %s\n", render.Printable(c.GetWhat()), strings.Join(row, "  "))
		return err
	}
}

// writeChange prints a change for programs: also that all there was has been told.
func writeChange(to io.Writer, format string, c *atysv1.Change) error {
	change := struct {
		What   string          `json:"what"`
		Object json.RawMessage `json:"object,omitempty"`
	}{What: c.GetWhat(), Object: json.RawMessage(c.GetObject().GetJson())}
	text, err := json.Marshal(change)
	if err != nil {
		return err
	}
	if format == "yaml" {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
		text = append([]byte("---\n"), text...)
	} else {
		text = append(text, '\n')
	}
	_, err = to.Write(harmless(text))
	return err
}
