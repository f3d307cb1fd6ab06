package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/binfile/debugfile"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/server"
)

func debugCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "debug",
		Short: "Give a server the files that name code of stripped programs",
		Long: `Programs without symbols are named on the server, which knows them by their
build-ids: by executables with symbols, as a build leaves them before they are
stripped, or by the stripped executable and its debug file. What was recorded
before is named as well.`,
		Args: knownCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var upload, list clientFlags
	add := &cobra.Command{
		Use:     "upload FILE...",
		Short:   "Send executables and debug files to a server",
		Example: `  atys debug upload build/shop build/libpay.so`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usageError{errors.New("name the files to send")}
			}
			for _, path := range args {
				if err := uploadDebug(c, &upload, path); err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
			}
			return nil
		},
	}
	upload.add(add)
	show := &cobra.Command{
		Use:   "list",
		Short: "List what a server was sent",
		Args:  noArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return listDebug(c, &list) },
	}
	list.add(show)
	c.AddCommand(add, show)
	return c
}

// kinds of debug files, as people call them.
func debugKind(k debugfile.Kept) string {
	if k.Executable {
		return "executable"
	}
	return "debug file"
}

func uploadDebug(c *cobra.Command, f *clientFlags, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() // it was only read
	var kept debugfile.Kept
	if err := askDebug(c, f, http.MethodPost, file, &kept); err != nil {
		return err
	}
	fmt.Printf("%s: %s of build-id %s\n", path, debugKind(kept), kept.BuildID)
	return nil
}

func listDebug(c *cobra.Command, f *clientFlags) error {
	var all []debugfile.Kept
	if err := askDebug(c, f, http.MethodGet, nil, &all); err != nil {
		return err
	}
	rows := [][]string{{"BUILD-ID", "KIND", "KB"}}
	for _, k := range all {
		rows = append(rows, []string{k.BuildID, debugKind(k), strconv.FormatInt((k.Bytes+1023)>>10, 10)})
	}
	return writeRows(os.Stdout, rows, render.Options{NoColor: true})
}

// askDebug asks a server about debug files.
func askDebug(c *cobra.Command, f *clientFlags, method string, body io.Reader, answer any) error {
	client, address, err := f.client()
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(c.Context(), method, address+server.DebugPath, body)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("%s does not answer: %w (--server or $%s names another)", address, err, serverVariable)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s refuses: %s", address, strings.TrimSpace(string(text)))
	}
	return json.Unmarshal(text, answer)
}
