package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
)

// serverVariable names the server where no flag does.
const serverVariable = "ATYS_SERVER"

// serverFlag says which server is asked.
type serverFlag struct{ server string }

func (f *serverFlag) add(c *cobra.Command) {
	c.Flags().StringVar(&f.server, "server", "", "address of the server, such as http://127.0.0.1:4300; else $"+serverVariable)
}

// address is where the server is: what the flag says, else the environment,
// else this machine.
func (f *serverFlag) address() (string, error) {
	address := f.server
	if address == "" {
		address = os.Getenv(serverVariable)
	}
	if address == "" {
		return "http://" + defaultListen, nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", &usageError{fmt.Errorf("--server %q: want an address such as http://127.0.0.1:4300", address)}
	}
	return address, nil
}

// httpClient asks servers. Answers to some questions have no end.
func httpClient() *http.Client {
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 4}}
}

// explain has an error of a server say what can be done about it.
func explain(address string, err error) error {
	var answer *connect.Error
	if !errors.As(err, &answer) {
		return err
	}
	switch answer.Code() {
	case connect.CodeUnavailable:
		return fmt.Errorf("%s does not answer: %s (\"atys up\" starts a server; --server or $%s names another)", address, answer.Message(), serverVariable)
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeResourceExhausted:
		return errors.New(answer.Message())
	case connect.CodeUnimplemented:
		return fmt.Errorf("%s is no server of atys, or one of another version: %s", address, answer.Message())
	}
	return fmt.Errorf("%s: %w", address, err)
}
