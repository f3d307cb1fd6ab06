package wire

//go:generate go build -o ../../bin/protoc/ google.golang.org/protobuf/cmd/protoc-gen-go connectrpc.com/connect/cmd/protoc-gen-connect-go
//go:generate protoc --plugin=../../bin/protoc/protoc-gen-go --plugin=../../bin/protoc/protoc-gen-connect-go --go_out=. --go_opt=module=atys.dev/atys/internal/wire --connect-go_out=. --connect-go_opt=simple,module=atys.dev/atys/internal/wire --proto_path=atysv1 atys.proto
