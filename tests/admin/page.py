#!/usr/bin/env python3
"""Uses the page in a browser: what a person would do, and what the server says then.

SCREENSHOTS=directory keeps a picture of each view: wide and on a phone, light and dark."""

import json
import os
import signal
import sys

from selenium.webdriver.common.keys import Keys

import kit
import unexpected
from browser import PHONE, WIDE, page

HOSTILE = "<img src=x onerror=document.title='hit'><script>document.title='hit'</script>"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
MANY_TUBES = 20_000
MANY_JOBS = int(os.environ.get("ADMIN_JOBS", "1000000"))


def tubes_are_listed_and_found(server, browser):
    client = server.client()
    client.put("calm", "x")
    for _ in range(3):
        client.put("mail", "x")
    client.bury("mail", 1)
    browser.open()
    browser.shows("#state", "serving")
    browser.wait("the tube with buried jobs is first", lambda: browser.rows()[:1] == ["mail"])
    browser.shows("td.alarm", "1")
    browser.click("th button", "Ready")
    browser.click("th button", "Tube")
    browser.wait("by name", lambda: browser.rows() == ["calm", "default", "mail"])
    browser.press("/")
    browser.press("AL")
    browser.wait("the search finds", lambda: browser.rows() == ["calm"])
    browser.fill("#search", "nothing-like-it")
    browser.shows(".empty", "No tube")
    browser.fill("#search", "ma*")
    browser.wait("the pattern matches", lambda: browser.rows() == ["mail"])
    browser.wait("a small graph", lambda: browser.all("svg.spark path.line"))


def jobs_are_put_filtered_and_read(server, browser):
    client = server.client()
    browser.open()
    browser.click("nav button", "Put")
    browser.answer("Put a job", "Put", tube="read", body='{"deep": [1, {"big": 12345678901234567890}]}', priority="9")
    browser.shows(".notice", "put into")
    other = client.put("read", HOSTILE, priority=5)
    binary = client.put("read", b"\x00\xffdata", priority=50)
    browser.open("#/tube/read")
    browser.wait("three jobs", lambda: len(browser.rows()) == 3)
    browser.fill("#search", "onerror")
    browser.wait("the filter finds the body", lambda: browser.rows() == [str(other)])
    browser.fill("#search", "")
    browser.fill("input[aria-label='From priority']", "10")
    browser.wait("by priority", lambda: browser.rows() == [str(binary)])
    browser.click("button", "Clear")
    browser.fill("input[aria-label='Older than: number']", "5")
    browser.shows(".empty", "No job matches")
    browser.click("button", "Clear")
    browser.wait("all again", lambda: len(browser.rows()) == 3)
    browser.click("tbody a", str(other))
    browser.shows("pre", HOSTILE)
    assert not browser.all("main img, main script"), "a body stays a text"
    browser.press(Keys.ESCAPE)
    browser.wait("back at the tube", lambda: len(browser.rows()) == 3)
    browser.open(f"#/job/{binary}")
    browser.shows("pre.hex", "00 ff 64 61 74 61")
    job = next(job for job in server.get("tubes/read/jobs?state=ready")["jobs"] if job["pri"] == 9)
    browser.open(f"#/job/{job['id']}")
    browser.shows("pre.json", '"big": 12345678901234567890')
    browser.click("[role=tab]", "Text")
    browser.shows("pre.text", '{"deep"')
    browser.shows("dl", "timed out")
    browser.picture("job")


def tags_are_shown_and_filtered(server, browser):
    client = server.client()
    member = client.put("tagged", "x", tags="grp:rows idp:order-7:60")
    held = client.put("tagged", "x", tags="aft:rows exp:3600")
    client.put("tagged", "x")
    browser.open("#/tube/tagged/ready")
    browser.wait("two ready jobs", lambda: len(browser.rows()) == 2)
    browser.shows("tbody", "idp:order-7:60 grp:rows")
    browser.fill("input[placeholder='grp:name']", "grp:rows")
    browser.wait("the filter finds the member", lambda: browser.rows() == [str(member)])
    browser.click(".acting button", "All that match")
    browser.click(".acting button", "Priority")
    browser.shows("dialog[open] h2", "Change the priority of 1 ready job?")
    browser.press(Keys.ESCAPE)
    browser.click("button", "Clear")
    browser.open(f"#/job/{held}")
    browser.shows("h1 + .pill", "held")
    browser.shows("dl", "aft:rows exp:3600")
    browser.shows("dl", "expires in")
    browser.click("nav button", "Put")
    browser.answer("Put a job", "Put", tube="tagged", body="y", tags="grp:rows  idp:order-7")
    browser.shows(".notice", f"job {member} has the same idp key")
    browser.click("nav button", "Put")
    browser.answer("Put a job", "Put", tube="tagged", body="y", tags="grp:rows idp:order-8")
    browser.shows(".notice", "put into")
    assert [job["group"] for job in server.get("tubes/tagged/jobs?state=ready&tag=idp:order-8")["jobs"]] == ["rows"]


def the_list_the_question_and_the_change_have_one_filter(server, browser):
    client = server.client()
    for number in range(9):
        client.put("many", "needle" if number < 2 else "straw", priority=number)
    browser.open("#/tube/many/ready")
    browser.wait("all", lambda: len(browser.rows()) == 9)
    browser.click(".acting button", "All that match")
    is_off = lambda: all(not button.is_enabled() for button in browser.all(".acting [data-key^=change-]"))
    browser.fill("#search", "needle")
    browser.wait("two", lambda: len(browser.rows()) == 2)
    # Escape empties the field. Then the list has all jobs, and so has the question.
    browser.all("#search")[0].send_keys(Keys.ESCAPE)
    browser.wait(
        "the list is as empty of filters as the field",
        lambda: len(browser.rows()) == 9 and not browser.all("#search")[0].get_attribute("value"))
    # No event informs the page about this change of the field.
    browser.driver.execute_script(
        "document.querySelector('#search').value = 'needle';"
        " document.querySelector('[data-key=change-delete]').click()")
    browser.wait("the list follows", lambda: len(browser.rows()) == 2)
    assert not browser.all("dialog[open]"), "a question about jobs that the list does not show"
    browser.click(".acting button", "Delete")
    browser.shows("dialog[open] h2", "Delete 2 ready jobs?")
    browser.press(Keys.ESCAPE)
    browser.fill("#search", "")
    for label, text in (
        ("Older than: number", "-5"), ("From priority", "1e"), ("To priority", "4294967296"), ("To priority", "1.5"),
    ):
        field = f"input[aria-label='{label}']"
        browser.fill(field, text)
        browser.shows(".empty", f"{label}: expected a whole number")
        assert is_off() and not browser.rows(), f"{label} {text}"
        browser.click("button", "Clear")
        browser.wait("all again", lambda: len(browser.rows()) == 9 and not is_off())
    browser.fill("input[placeholder='grp:name']", "nonsense")
    browser.shows(".empty", "tag: expected")
    assert is_off(), "what the server cannot read is no filter"
    # The address has the filter.
    browser.click("button", "Clear")
    browser.fill("#search", "needle")
    browser.fill("input[aria-label='From priority']", "1")
    browser.wait("one", lambda: browser.rows() == ["2"])
    address = browser.driver.current_url
    assert address.endswith("#/tube/many/ready?min_priority=1&contains=needle"), address
    browser.driver.refresh()
    browser.wait("the same after a reload", lambda: browser.rows() == ["2"])
    browser.click(".tabs a", "delayed")
    browser.shows(".empty", "No job matches")
    assert browser.all("#search")[0].get_attribute("value") == "needle", "other states have the same filter"
    assert len(server.get("tubes/many/jobs?state=ready")["jobs"]) == 9, "nothing was changed"


def jobs_are_found_sorted_and_copied(server, browser):
    client = server.client()
    tags = f"idp:order-7 con:host:2 grp:rows exp:3600 trc:{TRACE}"
    first = client.put("work", '{"to": "ann"}', priority=5, ttr=90, tags=tags)
    second = client.put("work", "line\nnext", priority=3)
    binary = client.put("work", b"\x00\xff\r\n", priority=9)
    browser.open("#/tube/work/ready")
    browser.wait("in the order of the server", lambda: browser.rows() == [str(second), str(first), str(binary)])
    begins = ["line next", '{"to": "ann"}', "00 ff 0d 0a"]
    browser.wait("the bodies begin", lambda: browser.texts("td.preview") == begins)
    browser.click("th button", "Job")
    browser.wait("by number", lambda: browser.rows() == [str(first), str(second), str(binary)])
    browser.click("th button", "Job")
    browser.wait("and down", lambda: browser.rows() == [str(binary), str(second), str(first)])
    browser.fill("input[aria-label='Go to job']", str(first) + Keys.ENTER)
    browser.shows("h1", f"Job {first}")
    browser.click("button", "Put a copy")
    browser.answer(f"Put a copy of job {first}", "Put", body='{"to": "bob"}')
    browser.shows(".notice", "put into")
    copy = client.stats(binary + 1)
    assert (copy["tube"], copy["pri"], copy["ttr"], copy["group"]) == ("work", "5", "90", "rows"), copy
    assert (copy["concurrency-key"], copy["concurrency-limit"], copy["trace"]) == ("host", "2", TRACE), copy
    assert 3000 < int(copy["expires-in"]) <= 3600, copy
    assert not copy["idempotency-key"], "with the key, it would be a duplicate"
    assert server.get(f"jobs/{binary + 1}")["body"]["data"] == '{"to": "bob"}'
    browser.open(f"#/job/{binary}")
    browser.click("button", "Put a copy")
    browser.answer(f"Put a copy of job {binary}", "Put", priority="1")
    browser.wait("the bytes are the same", lambda: client.stats(binary + 2))
    assert server.get(f"jobs/{binary + 2}")["body"]["data"] == "AP8NCg=="


def one_job_is_changed(server, browser):
    client = server.client()
    job = client.put("one", "x")
    browser.open(f"#/job/{job}")
    browser.click("main button", "Delay")
    browser.answer(f"Change the delay of job {job}?", "Change", delay="500")
    browser.shows("h1 + .pill", "delayed")
    browser.shows("dl", "the end of its delay")
    browser.click("main button", "Kick")
    browser.answer(f"Kick job {job}?", "Kick")
    browser.shows("h1 + .pill", "ready")
    browser.click("main button", "Priority")
    browser.answer("Change the priority", "Change", priority="42")
    browser.wait("the server knows", lambda: client.stats(job)["pri"] == "42")
    browser.click("main button", "Move")
    browser.answer("Move job", "Move", to="elsewhere")
    browser.shows("main", "in elsewhere")
    browser.click("main button", "Move")
    browser.answer("Move job", "Move", to="-bad-")
    browser.shows(".notice.bad", "not a tube name")
    assert client.reserve("elsewhere") == job
    browser.shows("h1 + .pill", "reserved")
    browser.click("main button", "Delete")
    browser.answer(f"Delete job {job}?", "Delete")
    browser.shows(".empty", "no such job")
    assert client.ask(f"release {job} 0 0") == "NOT_FOUND", "also for the client that had reserved it"


def clients_are_listed_and_ended(server, browser):
    worker = server.client()
    assert worker.ask("session s 600") == "SESSION 0"
    client = server.client()
    job = client.put("one", "x")
    worker.reserve("one")
    browser.open("#/")
    browser.click('main a[href="#/clients"]')
    browser.shows("h1", "Clients (2)")
    browser.shows("main tbody", "127.0.0.1:")
    browser.click("main tbody tr:first-child button", "End")
    browser.answer("End the connection of client", "Cancel")
    assert worker.ask("list-tube-used") == "USING default"
    browser.click("main tbody tr:first-child button", "End")
    browser.answer("End the connection of client", "End the connection")
    browser.shows("h1", "Clients (1)")
    assert worker.socket.recv(1) == b"", "its connection is closed"
    browser.open(f"#/job/{job}")
    browser.shows("main", "s: held for the grace")
    browser.open("#/tube/one/reserved")
    browser.shows("main tbody", "held for the grace")


def selections_and_matches_are_changed(server, browser):
    client = server.client()
    wanted = [client.put("some", f"apple {number}") for number in range(60)]
    client.put_many("some", 60, "pear")
    browser.open("#/tube/some/ready")
    browser.wait("a page", lambda: len(browser.rows()) == 50)
    for job in wanted[:2]:
        browser.click(f"[aria-label='Select job {job}']")
    browser.shows(".acting", "2 selected")
    browser.click(".acting button", "Delete")
    browser.picture("question")
    browser.answer("Delete 2 jobs?", "Delete")
    browser.wait("they are gone", lambda: not {str(job) for job in wanted[:2]} & set(browser.rows()))
    browser.shows(".tabs", "118")
    browser.click("[aria-label='Select all jobs of this page']")
    browser.shows(".acting", "50 selected")
    browser.click("[aria-label='Select all jobs of this page']")
    browser.shows(".acting", "0 selected")
    browser.fill("#search", "apple")
    browser.wait("the filter", lambda: len(browser.rows()) == 50 and client.stats(browser.rows()[0])["tube"] == "some")
    browser.click(".acting button", "All that match")
    browser.click(".acting button", "Move")
    browser.answer("Move 58 ready jobs?", "Move", to="apples")
    browser.shows(".empty", "No job matches")
    ready = lambda tube: client.stats_tube(tube).get("current-jobs-ready")
    browser.wait("they are moved", lambda: (ready("apples"), ready("some")) == ("58", "60"))
    client.bury("apples", 5)
    browser.open("#/tube/apples")
    browser.shows("[aria-current=page]", "buried")
    browser.click(".acting button", "All that match")
    browser.click(".acting button", "Kick")
    browser.answer("Kick 5 buried jobs?", "Kick")
    browser.wait("they are ready", lambda: client.stats_tube("apples")["current-jobs-ready"] == "58")
    browser.shows(".empty", "No buried jobs")


def dead_jobs_are_sent_back():
    with kit.server_with_dead_tube() as server, page(server) as browser:
        client = server.client()
        dead = client.let_die("mail", 4)
        browser.open("#/tube/mail/ready")
        client.put("mail", "alive")
        browser.wait("the job", lambda: len(browser.rows()) == 1)
        assert "Send back…" not in browser.texts(".acting button"), "no job of this tube is dead"
        alive = client.put("dead", "alive")
        browser.open(f"#/job/{dead[0]}")
        browser.shows("dl", "dead, from")
        browser.shows("dl", "mail")
        browser.click("main button", "Send back")
        browser.answer(f"Send back job {dead[0]}?", "Send")
        browser.shows("main", "in mail")
        browser.lacks("main button", "Send back")
        browser.open("#/tube/dead/ready")
        browser.wait("the jobs", lambda: len(browser.rows()) == 4)
        browser.click(f"[aria-label='Select job {dead[1]}']")
        browser.click(f"[aria-label='Select job {alive}']")
        browser.click(".acting button", "Send back")
        browser.answer("Send back 2 jobs?", "Send")
        browser.shows(".notice", "1 job sent back. 1 not changed: the job is not dead")
        browser.click(".acting button", "All that match")
        browser.click(".acting button", "Send back")
        # The number is that of the dead ones.
        browser.answer("Send back 2 dead ready jobs?", "Send", rate="1000")
        browser.shows(".notice", "2 jobs sent back.")
        browser.wait("they are back", lambda: {client.stats(job)["tube"] for job in dead} == {"mail"})
        assert client.stats(alive)["tube"] == "dead"


def tubes_and_the_server_are_changed(server, browser):
    client = server.client()
    client.put("paused", "x")
    browser.open("#/tube/paused")
    browser.click("main button", "Pause")
    browser.answer("Pause", "Pause", seconds="600")
    browser.shows(".pill", "paused for")
    browser.click("main button", "Resume")
    browser.wait("it goes on", lambda: client.stats_tube("paused")["pause"] == "0")
    browser.click("main button", "Flush")
    browser.answer("Delete all 1 job of", "Delete")
    browser.wait("it is empty", lambda: client.stats_tube("paused").get("current-jobs-ready", "0") == "0")
    browser.open()
    browser.click("nav button", "Drain")
    browser.answer("Drain the server?", "Drain")
    browser.shows("#state", "draining")
    assert client.ask("put 0 0 1 1\r\nx") == "DRAINING"
    browser.click("nav button", "End drain")
    browser.answer("End drain mode?", "End")
    browser.shows("#state", "serving")


def everything_goes_by_keyboard(server, browser):
    client = server.client()
    job = client.put("keys", "typed")
    browser.open("#/tube/keys/ready")
    browser.wait("the job", lambda: browser.rows() == [str(job)])
    focused = lambda: browser.driver.execute_script(
        "return document.activeElement.innerText || document.activeElement.getAttribute('aria-label') || ''")
    def tab_to(text):
        for _ in range(60):
            browser.press(Keys.TAB)
            if focused().strip().startswith(text):
                return
        raise AssertionError(f"{text} cannot be reached by the keyboard")
    tab_to(f"Select job {job}")
    browser.press(Keys.SPACE)
    browser.shows(".acting", "1 selected")
    tab_to("Delete")
    browser.press(Keys.ENTER)
    browser.shows("dialog[open] h2", f"Delete job {job}?")
    browser.press(Keys.ESCAPE)
    browser.wait("Escape closes the question", lambda: not browser.all("dialog[open]"))
    assert client.stats(job), "and changes nothing"
    tab_to("Delete")
    browser.press(Keys.ENTER)
    browser.shows("dialog[open] h2", f"Delete job {job}?")
    browser.press(Keys.ENTER)
    browser.wait("Enter deletes it", lambda: not client.stats(job))


def many_tubes_and_many_jobs(server, browser):
    client = server.client()
    for first in range(0, MANY_TUBES, 1000):
        client.socket.sendall("".join(f"watch tube-{number}\r\n" for number in range(first, first + 1000)).encode())
        for _ in range(1000):
            client.replies.readline()
    client.put_many("million", MANY_JOBS, "straw")
    needle = client.put("million", "needle")
    client.put("tube-19999", "x")
    client.bury("tube-19999", 1)
    browser.open()
    browser.wait("the one with a buried job is first", lambda: browser.rows()[:1] == ["tube-19999"])
    browser.shows("h2", "Tubes (20,0")
    assert len(browser.rows()) == 100
    browser.click("button", "Next")
    browser.shows("main", "101 to 200")
    # A double click.
    browser.driver.execute_script(
        "const next = [...document.querySelectorAll('button')].find((each) => each.innerText === 'Next');"
        " next.click(); next.click()")
    browser.wait("the next page", lambda: "101 to 200" not in browser.texts("main")[0])
    assert "201 to 300" in browser.texts("main")[0]
    browser.click("button", "Back")
    browser.shows("main", "101 to 200")
    browser.fill("#search", "1999?")
    browser.fill("#search", "tube-1999?")
    browser.wait("ten of them", lambda: len(browser.rows()) == 10)
    browser.open("#/tube/million/ready")
    browser.wait("a page", lambda: len(browser.rows()) == 50)
    first = browser.rows()[0]
    browser.click("button", "Next")
    browser.wait("the next page", lambda: len(browser.rows()) == 50 and browser.rows()[0] != first)
    browser.fill("#search", "needle")
    browser.wait("the needle", lambda: browser.rows() == [str(needle)])
    browser.fill("#search", "straw")
    browser.wait("the straw", lambda: len(browser.rows()) == 50)
    browser.click(".acting button", "All that match")
    browser.click(".acting button", "Delete")
    browser.answer(f"Delete {MANY_JOBS:,} ready jobs?", "Delete")
    assert client.ask("use million") == "USING million"
    browser.wait("only the needle is left", lambda: client.stats_tube("million")["current-jobs-ready"] == "1")
    browser.shows(".notice", f"{MANY_JOBS:,} jobs deleted")


def the_status_page_shows_the_figures():
    """The page of --metrics, which shares its plots with that of --admin."""
    metrics = kit.with_server.free_port()
    with kit.server("--metrics", f"127.0.0.1:{metrics}") as server, page(server) as browser:
        server.client().put("mail", "x")
        browser.driver.get(f"http://127.0.0.1:{metrics}/")
        browser.shows("#state", "serving")
        browser.shows("#tubes", "mail")
        browser.shows(".card.ready .value", "1")
        browser.wait("the plots are drawn", lambda: len(browser.all("svg.plot line.base")) == 8)
        browser.picture("status")
        browser.wait(
            "two samples make rates", lambda: "–" not in browser.texts("#tubes tr:first-child td")[5:7])
        client = server.client()
        # More than the 500 that it shows; the last one has the job.
        for number in range(600):
            client.ask(f"watch tube-{number:03}")
        client.put("tube-599", "x")
        client.bury("tube-599", 1)
        first = lambda: browser.texts("#tubes tr:first-child td")[:1]
        browser.click("#head button", "Buried")
        browser.wait("the buried job is found by sorting", lambda: first() == ["tube-599"])
        browser.shows("#omitted", "the first 500 of 60")
        browser.fill("#filter", "tube-598")
        browser.wait(
            "a tube is found by its name", lambda: first() == ["tube-598"] and len(browser.all("#tubes tr")) == 1)
        top_of = lambda part: browser.driver.execute_script(
            f"return document.getElementById('{part}').getBoundingClientRect().top")
        assert top_of("tubes") < top_of("rates"), "tubes come before the rates"
        assert "ready" in browser.driver.title, browser.driver.title
        os.kill(server.pid, signal.SIGSTOP)
        try:
            browser.wait(
                "the title says that the server does not answer",
                lambda: browser.driver.title.startswith("not reachable"))
            assert browser.all("body.stale"), "the numbers are dimmed"
            browser.shows("#state", "not reachable")
        finally:
            os.kill(server.pid, signal.SIGCONT)
        browser.wait("it is back", lambda: "ready" in browser.driver.title and not browser.all("body.stale"))


def a_token_is_asked_for():
    path, token = kit.token_file()
    with kit.server("--admin-token-file", path) as server, page(server) as browser:
        browser.open()
        browser.shows("dialog[open] h2", "Token")
        assert not browser.all("dialog[open] [role=alert]"), "nothing was wrong yet"
        browser.open("#/clients")
        for _ in range(3):
            browser.press(Keys.ESCAPE)
        browser.press("/")
        assert browser.all("dialog[open]"), "the page needs the token"
        assert browser.driver.current_url.endswith("#/clients"), "Escape goes back only without a dialog"
        browser.press("x" * 40, Keys.ENTER)
        browser.shows("dialog[open] [role=alert]", "does not accept this token")
        browser.fill("dialog input", "x" * 40)
        browser.click("dialog button", "Open")
        browser.shows("dialog[open] [role=alert]", "does not accept this token")
        browser.fill("dialog input", "€" * 40)
        browser.click("dialog button", "Open")
        assert browser.all("dialog[open] input:invalid"), "no request can have this token"
        browser.fill("dialog input", f" {token} ")
        browser.click("dialog button", "Open")
        browser.shows("#state", "serving")
        browser.click("nav button", "Put")
        browser.answer("Put a job", "Put", tube="secret", body="x")
        browser.wait("it is put", lambda: server.client().stats_tube("secret").get("current-jobs-ready") == "1")
    os.unlink(path)
    with kit.server("--admin-read-only") as server, page(server) as browser:
        server.client().put("mail", "x")
        browser.open("#/tube/mail/ready")
        browser.shows("#state", "read-only")
        browser.wait("the job", lambda: len(browser.rows()) == 1)
        buttons = browser.all("nav button, .acting button, main .end button")
        assert not any(button.is_displayed() for button in buttons), "nothing to press"


def tasks_are_found_again_after_a_reload():
    with kit.server_with_dead_tube() as server, page(server) as browser:
        server.client().let_die("mail", 2000)
        counted = server.get("tubes/dead/jobs/count?state=ready&dead=true")
        chosen = {"state": "ready", "dead": True, "expected": 2000, "as_of": counted["as_of"]}
        redrive = {"action": "redrive", "rate": 1, **chosen}
        tasks = [server.post("tubes/dead/actions", redrive)[1] for _ in range(16)]
        browser.open()
        browser.wait("all tasks", lambda: len(browser.all(".notice.running")) == 16)
        browser.shows(".notice.running", "jobs sent back (dead)")
        browser.driver.execute_script(
            "for (const stop of document.querySelectorAll('.notice.running button')) stop.click()")
        browser.wait("they are over", lambda: not browser.all(".notice.running"))
        states = {server.get(f"tasks/{task['id']}")["state"] for task in tasks}
        assert states == {"stopped"}, states


def pictures():
    """Each view, wide and on a phone, light and dark; nothing is wider than the screen."""
    with kit.server() as server:
        client = server.client()
        for number in range(40):
            client.put("mail", json.dumps({"to": f"user{number}@example.org", "list": [1, 2, {"a": []}]}), number % 5)
        client.put("images/resize", b"\x00\x01\xffbin" * 40, delay=1000)
        client.bury("mail", 6)
        for size in (WIDE, PHONE):
            for scheme in ("light", "dark"):
                with page(server, size=size, scheme=scheme) as browser:
                    name = f"{'wide' if size == WIDE else 'phone'}-{scheme}"
                    for view, path, shown in (
                        ("overview", "", "mail"), ("tube", "#/tube/mail/ready", "7"), ("job", "#/job/8", "Job 8"),
                    ):
                        browser.open(path)
                        browser.shows("main", shown)
                        browser.wait("it is drawn", lambda: browser.all("td, pre"))
                        width = browser.driver.execute_script(
                            "return document.documentElement.scrollWidth - innerWidth")
                        assert width <= 0, f"{name} {view} is {width} pixels wider than the screen"
                        browser.picture(f"{name}-{view}")


def main():
    steps = (
        tubes_are_listed_and_found, jobs_are_put_filtered_and_read, tags_are_shown_and_filtered,
        the_list_the_question_and_the_change_have_one_filter, jobs_are_found_sorted_and_copied,
        one_job_is_changed, clients_are_listed_and_ended, selections_and_matches_are_changed,
        tubes_and_the_server_are_changed, everything_goes_by_keyboard, many_tubes_and_many_jobs, *unexpected.STEPS,
    )
    chosen = sys.argv[1:]
    for step in steps:
        if chosen and step.__name__ not in chosen:
            continue
        with kit.server() as server, page(server) as browser:
            try:
                step(server, browser)
            except BaseException:
                browser.picture("failed")
                text = browser.texts("body")[0][:2000]
                print(f"admin: {step.__name__} failed; the page has:\n{text}", file=sys.stderr)
                raise
    for step in (
        a_token_is_asked_for, the_status_page_shows_the_figures, dead_jobs_are_sent_back,
        tasks_are_found_again_after_a_reload, pictures, *unexpected.STEPS_WITH_OWN_SERVER,
    ):
        if not chosen or step.__name__ in chosen:
            step()
    print(f"admin: {len(chosen or steps)} things were done on the page in a browser")


if __name__ == "__main__":
    sys.exit(main())
