%% A server that does some work for each request, on a port that it prints.
-module(service).
-export([main/1, chained/1]).
-record(item, {id, name, price}).

main(_) ->
    ets:new(items, [named_table, public, set, {read_concurrency, true}]),
    [ets:insert(items, {I, item(I)}) || I <- lists:seq(0, 299)],
    ets:new(counted, [named_table, public]),
    ets:insert(counted, {next, 0}),
    {ok, Listener} = gen_tcp:listen(0, [binary, {ip, {127, 0, 0, 1}}, {active, false}, {packet, http_bin}, {backlog, 64}, {nodelay, true}]),
    {ok, Port} = inet:port(Listener),
    io:format("~b~n", [Port]),
    accept(Listener).

accept(Listener) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Worker = spawn(fun() -> receive go -> converse(Socket) end end),
    ok = gen_tcp:controlling_process(Socket, Worker),
    Worker ! go,
    accept(Listener).

converse(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, http_eoh} ->
            Seed = ets:update_counter(counted, next, 1),
            Jobs = jobs(),
            One = (element(1 + Seed rem tuple_size(Jobs), Jobs))(Seed),
            Two = (element(1 + Seed div 7 rem tuple_size(Jobs), Jobs))(Seed),
            Body = io_lib:format("one ~p two ~p~n", [One, Two]),
            ok = gen_tcp:send(Socket, [<<"HTTP/1.1 200 OK\r\nContent-Length: ">>, integer_to_binary(iolist_size(Body)), <<"\r\n\r\n">>, Body]),
            converse(Socket);
        {ok, _} -> converse(Socket);
        {error, _} -> gen_tcp:close(Socket)
    end.

item(I) -> #item{id = I, name = "item " ++ integer_to_list(I), price = I * 1.19}.

text() -> [io_lib:format("~5..0b ~s ~.2f~n", [I, N, P]) || {_, #item{id = I, name = N, price = P}} <- ets:tab2list(items)].

jobs() ->
    {fun(_) -> iolist_size(text()) end,
     fun(_) -> T = iolist_to_binary(text()), {match, M} = re:run(T, "^(\\d{5}) (\\w+) (\\d+)", [global, multiline, {capture, all, binary}]), length(M) + length(binary:split(T, <<" ">>, [global])) end,
     fun(S) -> L = [{(I * 7919 + S) rem 1009, I} || I <- lists:seq(1, 2000)], length(lists:usort(fun({A, _}, {B, _}) -> A =< B end, L)) + element(2, hd(lists:keysort(1, L))) end,
     fun(S) -> M = lists:foldl(fun(I, A) -> maps:update_with(I rem 97, fun(V) -> V + S end, 1, A) end, #{}, lists:seq(1, 3000)), maps:fold(fun(_, V, A) -> V + A end, 0, maps:filter(fun(K, _) -> K rem 2 =:= 0 end, M)) end,
     fun(_) -> length([X * Y || X <- lists:seq(1, 60), Y <- lists:seq(1, 60), X =/= Y]) + lists:sum(lists:map(fun(X) -> X * X end, lists:filter(fun(X) -> X rem 3 =:= 0 end, lists:seq(1, 1000)))) end,
     fun(_) -> B = << <<(X * 3):16/little>> || X <- lists:seq(1, 2000) >>, sums(B, 0) + erlang:crc32(B) + byte_size(base64:encode(B)) end,
     fun(_) -> erlang:md5(iolist_to_binary(text())), byte_size(zlib:uncompress(zlib:compress(iolist_to_binary(text())))) end,
     fun(_) -> byte_size(term_to_binary(ets:tab2list(items))) + length(binary_to_term(term_to_binary(lists:seq(1, 1000)))) end,
     fun(_) -> lists:sum([try deep(20) catch throw:{refused, N} -> N; error:badarith -> 2 end || _ <- lists:seq(1, 100)]) + lists:sum([case catch 1 div (X - X) of {'EXIT', _} -> 1; _ -> 0 end || X <- lists:seq(1, 50)]) end,
     fun(S) -> fibonacci(16 + S rem 4) end,
     fun(_) -> ets:foldl(fun({_, #item{price = P}}, A) -> A + P end, 0, items) + length(ets:select(items, [{{'$1', '_'}, [{'>', '$1', 100}], ['$1']}])) end,
     fun(_) -> Self = self(), [spawn(fun() -> Self ! {done, fibonacci(10)} end) || _ <- lists:seq(1, 20)], lists:sum([receive {done, N} -> N end || _ <- lists:seq(1, 20)]) end,
     fun(S) -> D = lists:foldl(fun(I, A) -> gb_trees:enter(I * 7919 rem 1009, I, A) end, gb_trees:empty(), lists:seq(1, 400)), gb_trees:size(D) + sets:size(sets:from_list([I rem (S rem 50 + 7) || I <- lists:seq(1, 500)])) + dict:size(dict:from_list([{I, I} || I <- lists:seq(1, 100)])) end,
     fun(_) -> length(string:tokens(lists:flatten(text()), " \n")) + length(string:split(binary_to_list(iolist_to_binary(text())), "item", all)) + byte_size(unicode:characters_to_binary(string:uppercase("gr\x{f6}\x{df}er"))) end,
     fun(S) -> queue:len(lists:foldl(fun queue:in/2, queue:new(), lists:seq(1, 500))) + element(1, rand:uniform_s(100, rand:seed_s(exsss, S))) end,
     fun(_) -> length(integer_to_list(lists:foldl(fun(X, A) -> X * A end, 1, lists:seq(1, 200)))) + trunc(lists:sum([math:sin(X) * math:sqrt(X) || X <- lists:seq(1, 500)])) end,
     fun(_) -> apply(?MODULE, chained, [500]) + erlang:phash2(text()) rem 7 end}.

sums(<<X:16/little, Rest/binary>>, A) -> sums(Rest, A + X);
sums(<<>>, A) -> A.

deep(0) -> throw({refused, 7});
deep(N) -> 1 + deep(N - 1).

chained(0) -> 0;
chained(N) -> 1 + ?MODULE:chained(N - 1).

fibonacci(N) when N < 2 -> N;
fibonacci(N) -> fibonacci(N - 1) + fibonacci(N - 2).
