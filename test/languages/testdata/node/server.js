'use strict';
// A server that answers each request with some JSON, on a port that it prints.
const http = require('node:http');

const goods = [];
for (let i = 0; i < 50; i++) {
  goods.push({ id: i, name: `good ${i}`, price: i * 3 });
}

function answer(request, response) {
  const wanted = goods.filter((g) => g.price % 2 === request.url.length % 2);
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify(wanted.map((g) => ({ ...g, total: g.price * 1.2 }))));
}

const server = http.createServer(answer);
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
