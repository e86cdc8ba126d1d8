import java.util.*;

/** Positional arguments and `--name value` pairs; a name nobody asked for is an error, not silence. */
final class Options {
    private final List<String> positional = new ArrayList<>();
    private final Map<String, String> named = new LinkedHashMap<>();
    private final Set<String> used = new HashSet<>();

    Options(String[] arguments, String usage, int positionals, String... flags) {
        Set<String> without = Set.of(flags);
        for (int at = 0; at < arguments.length; at++) {
            if (!arguments[at].startsWith("--")) {
                positional.add(arguments[at]);
            } else if (without.contains(arguments[at].substring(2))) {
                named.put(arguments[at].substring(2), "true");
            } else if (at + 1 < arguments.length) {
                named.put(arguments[at].substring(2), arguments[++at]);
            } else {
                fail(arguments[at] + " needs a value\n" + usage);
            }
        }
        if (positional.size() != positionals) fail(usage);
    }

    String at(int index) { return positional.get(index); }

    long numberAt(int index) { return number(positional.get(index), positional.get(index)); }

    boolean flag(String name) { return text(name, null) != null; }

    String text(String name, String otherwise) {
        used.add(name);
        return named.getOrDefault(name, otherwise);
    }

    long number(String name, long otherwise) {
        String given = text(name, null);
        return given == null ? otherwise : number(given, "--" + name);
    }

    /** To be called after the last option was read. */
    void done() {
        for (String name : named.keySet()) if (!used.contains(name)) fail("unknown option --" + name);
    }

    static void fail(String text) {
        System.err.println(text);
        System.exit(2);
    }

    private static long number(String given, String what) {
        try {
            return Long.parseLong(given.replace("_", ""));
        } catch (NumberFormatException fault) {
            fail(what + ": " + given + " is no number");
            return 0;
        }
    }
}
