"""Networks of sequences: an encoder small enough to be tested word by word."""

from trainwright.network import load_network, network_from_dict

SHAPE = {"outputs": [4, 6], "inputs": [4, 6], "ranks": [6], "relu": False}


def encoder_tables():
    """Return the tables of an encoder of 24 features and 3 heads, its tokens two digits to 5."""
    embedding = {"outputs": [4, 6], "inputs": [5, 5], "ranks": [5], "bias": False, "relu": False}
    layers = [
        {"name": "embedding", "product": ["digit1", "digit2"], **embedding},
        *({"name": name, "from": "embedding", **SHAPE} for name in ("query", "key", "value")),
        {"name": "heads", "attention": ["query", "key", "value"], "heads": 3},
        {"name": "output", **SHAPE},
        {"name": "sum1", "add": ["embedding", "output"], "relu": False},
        {"name": "norm1", "norm": "layer"},
        {"name": "scale1", "scale": 24},
        {"name": "wide", **SHAPE},
        {"name": "gelu", "function": "gelu"},
        {"name": "narrow", **SHAPE},
        {"name": "sum2", "add": ["scale1", "narrow"], "relu": False},
        {"name": "norm2", "norm": "layer"},
        {"name": "scale2", "scale": 24},
    ]
    digits = [{"name": f"digit{n}", "rows": [n - 1, n]} for n in (1, 2)]
    return {
        "name": "small encoder", "classes": 4, "image": [2, 5], "tokens": 16, "inputs": digits,
        "layers": layers,
    }  # fmt: skip


def classifier(*, over="mean", **keys):
    """Build the encoder with one of 6 classes for a sequence, whose tokens of zeros are padding."""
    tables = encoder_tables()
    tables["layers"] += [
        {"name": "pooled", "over_tokens": over},
        {"name": "intent", "outputs": [3, 2], "inputs": [4, 6], "ranks": [3], "relu": False},
    ]
    return network_from_dict({**tables, "padding": True, "classes": 6, **keys})


def small_encoder(**keys):
    """Build the encoder, with other keys of the network."""
    return network_from_dict({**encoder_tables(), **keys})


def encoders_768(count):
    """Build ``count`` encoders of hidden size 768, each after the other."""
    network = load_network("encoder-768").to_dict()
    embedding, *encoder = network["layers"]
    layers, before = [embedding], "embedding"
    for number in range(1, count + 1):
        new = {table["name"]: f"{table['name']}_{number}" for table in encoder}
        new["embedding"] = before
        for table in encoder:
            read = {key: table[key] for key in ("from", "add", "attention") if key in table}
            read = {
                key: new[names] if isinstance(names, str) else [new[name] for name in names]
                for key, names in read.items()
            }
            layers.append({**table, **read, "name": new[table["name"]]})
        before = layers[-1]["name"]
    return network_from_dict({**network, "name": f"{count} encoders", "layers": layers})


def dropping_classifier(probability=0.25):
    """Build the classifier with dropouts of tokens and of whole sequences."""
    network = classifier().to_dict()
    layers = network["layers"]
    place = next(n for n, t in enumerate(layers) if t.get("name") == "sum1")
    layers.insert(place, {"name": "drop1", "from": "output", "dropout": probability})
    layers[place + 1]["add"] = [layers[place + 1]["add"][0], "drop1"]
    layers.insert(-1, {"name": "drop2", "from": "pooled", "dropout": probability})
    layers[-1]["from"] = "drop2"
    return network_from_dict(network)


def decoder(*, positions="one-hot", **keys):
    """Build the encoder as a decoder: causal attention, and positions that are added."""
    tables = encoder_tables()
    learned = {"outputs": [4, 6], "inputs": [5, 4], "ranks": [4], "bias": False, "relu": False}
    embedding, *rest = tables["layers"]
    if positions == "one-hot":
        tables["inputs"] += [
            {"name": "high", "positions": "one-hot", "size": 5, "every": 4},
            {"name": "low", "positions": "one-hot", "size": 4},
        ]
        embedding, *rest = [
            embedding,
            {"name": "places", "product": ["high", "low"], **learned},
            {"name": "placed", "add": ["embedding", "places"], "relu": False},
            *rest,
        ]
    else:
        tables["inputs"].append({"name": "waves", "positions": "sinusoidal", "size": 24})
        rest.insert(0, {"name": "placed", "add": ["embedding", "waves"], "relu": False})
    for layer in rest:
        if layer.get("from") == "embedding":
            layer["from"] = "placed"
        if layer["name"] == "heads":
            layer["causal"] = True
        if layer["name"] == "sum1":
            layer["add"] = ["placed", "output"]
    return network_from_dict({**tables, "layers": [embedding, *rest], **keys})
