// node-postgres through the gatekeeper: `NODE_PATH=… node main.cjs`, environment as in harness.cjs.
"use strict";

require("./statements.cjs");
require("./transactions.cjs");
require("./transfers.cjs");
require("./harness.cjs").main();
